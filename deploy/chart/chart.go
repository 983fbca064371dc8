// Package chart holds files of the Helm chart that the program needs too.
//
// Both take them from here, so they are the same.
package chart

import _ "embed"

// ChangedBy are the admission policy that writes who changed an object, and its binding.
//
//go:embed fairlead/files/changed-by.yaml
var ChangedBy []byte
