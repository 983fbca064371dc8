// Package access decides who may read what a plane knows. It authenticates a request by a
// bearer token or a client certificate, and has the Kubernetes API say whether that user
// may: nothing about users and rights is stored here.
//
// A yes is used for MaxAge at most, counted from when the API was asked. An error is never a
// yes. While the API is away, what it said last is used until then. Nobody keeps others out:
// each user has a share of the questions to the API, and the API is asked about tokens of nobody
// known at a bounded rate.
//
// Files in reading order:
//   - guard.go: what stands before a handler
//   - access.go: the Judge
//   - strangers.go, answers.go: tokens of nobody known, and what the API said a while ago
//   - kubernetes.go: how the API is asked
//   - meter.go: what is counted
package access
