// Package access decides who may read what a plane knows. It authenticates a request by a
// bearer token or a client certificate, and has the Kubernetes API say whether that user
// may: nothing about users and rights is stored here.
//
// A yes is used for MaxAge at most, counted from when the API was asked. An error is never a
// yes. While the API is away, what it said last is used until then.
package access
