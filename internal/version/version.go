// Package version says which build of Fairlead this is.
//
// It reads nothing but what the linker and the Go toolchain put into the binary,
// so the answer never changes while a process runs.
package version

import "runtime/debug"

// stamp is `git describe` at the time of the build; the linker sets it
// (tools/ldflags.sh). Only `go build` without our Makefile leaves it empty.
var stamp string

// String returns the version of this build: the linker's stamp, else the module
// version or the commit that the Go toolchain recorded, else "unknown". It is
// never empty and has no spaces, so it can stand in a header or a label.
func String() string {
	if stamp != "" {
		return stamp
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return fromBuild(info)
}

func fromBuild(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	revision, dirty := "", ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value
		case "vcs.modified":
			if s.Value == "true" {
				dirty = "-dirty"
			}
		}
	}
	if revision == "" {
		return "unknown"
	}
	return revision[:min(12, len(revision))] + dirty
}
