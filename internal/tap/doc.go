// Package tap decides what of single requests may be shown, and to whom (fairlead tap). It is pure: times are arguments.
//
// match.go says whether a request is one of those that somebody wants to see, redact.go takes out what is a credential and
// bounds the rest, and bound.go says how many are shown.
package tap
