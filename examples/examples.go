// Package examples holds the manifests of this folder, so that the demo applies
// exactly what people read and copy.
//
// It refuses to generate anything. Invariant: every file is valid input of
// `kubectl apply -f`.
package examples

import "embed"

// Files are the manifests, by their path below examples/. The folder network is not among them: it speaks of somebody's router.
//
//go:embed news/*.yaml team01/*.yaml
var Files embed.FS
