// Package model is Fairlead's vocabulary: listeners, virtual hosts, routes,
// backends and machines as plain values, free of Kubernetes and of Envoy.
//
// Every kind of route resource is translated into these nouns and every proxy is
// configured from them; nothing else connects the two. Values are immutable once
// they are handed on: whoever wants a change makes a new value.
//
// The package does no I/O, reads no clock and keeps no state.
package model
