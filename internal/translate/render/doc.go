// Package render writes a whole result as text for people, the same bytes for the same result.
// Golden files and "fairlead translate" show it.
//
// Read the files in this order; each calls only later ones:
//   - desired.go: the result of a translation, as data
//   - text.go: Text, with the entries that need no file of their own
//   - status.go: the status of each resource
//   - route.go, listener.go, frontend.go: one entry each
//   - policy.go, tls.go: parts of these entries
//   - line.go: lists and lines that several entries have
package render
