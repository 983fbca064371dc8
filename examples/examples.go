// Package examples holds the manifests of this folder, so that the demo applies
// exactly what people read and copy.
//
// It refuses to generate anything. Invariant: every file is valid input of
// `kubectl apply -f`.
package examples

import "embed"

// Files are the manifests, by their path below examples/. The folders network, policies and clouds are not among them: they speak of somebody's router, shop and clouds.
//
//go:embed news/*.yaml team01/*.yaml
var Files embed.FS
