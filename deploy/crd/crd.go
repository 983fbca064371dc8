// Package crd holds the CustomResourceDefinitions that a plane installs, as files.
//
// It refuses to know what they say: gateway is Gateway API's own, the others are generated from
// the Go types. Invariant: every *.yaml file in these folders is a definition or an admission
// policy that guards definitions.
package crd

import (
	"embed"
	"io/fs"
)

//go:generate ./sync.sh

//go:embed gateway/*.yaml experimental/*.yaml fairlead/*.yaml contour/*.yaml
var files embed.FS

// Channel is one of Gateway API's: which fields its kinds have.
type Channel string

const (
	// Standard has the fields that stay.
	Standard Channel = "standard"
	// Experimental has those that may still change too. An API with the standard channel
	// drops them from what it is given.
	Experimental Channel = "experimental"
)

// Gateway returns Gateway API's kinds with the fields of a channel.
func Gateway(c Channel) fs.FS {
	if c == Experimental {
		return sub("experimental")
	}
	return sub("gateway")
}

// Fairlead returns fairlead.dev.
func Fairlead() fs.FS { return sub("fairlead") }

// Contour returns contour.heptio.com.
func Contour() fs.FS { return sub("contour") }

// All returns every set, in the order in which they should be installed.
func All(c Channel) []fs.FS { return []fs.FS{Gateway(c), Fairlead(), Contour()} }

func sub(dir string) fs.FS {
	f, err := fs.Sub(files, dir)
	if err != nil {
		panic(err) // only an invalid path is an error, and these are constants
	}
	return f
}
