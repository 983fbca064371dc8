#!/usr/bin/env bash
# Prints the linker flags of our binaries: `tools/ldflags.sh` for programs, `tools/ldflags.sh test` for test binaries.
#
# The Kubernetes libraries take their version from the linker; without it the embedded API server and kubectl call
# themselves v0.0.0. It is read from go.mod, so there is one place to change. Test binaries get no version of our own:
# it changes with every commit, and with it every cached test result would be thrown away.
set -euo pipefail
cd "$(dirname "$0")/.."

kubernetes=$(awk '$1 == "k8s.io/kubernetes" { print $2; exit }' go.mod)
IFS=. read -r major minor _ <<<"${kubernetes#v}"
flags="-s -w"
for pair in "gitVersion=$kubernetes" "gitMajor=$major" "gitMinor=$minor" gitTreeState=clean buildDate=2026-01-01T00:00:00Z; do
	flags+=" -X k8s.io/component-base/version.$pair"
done
if [[ ${1:-} != test ]]; then
	# safe.directory: continuous integration often runs as root on a clone that belongs to somebody else.
	ours=$(git -c safe.directory='*' describe --tags --always --dirty 2>/dev/null || echo unknown)
	flags+=" -X fairlead.dev/internal/version.stamp=$ours"
fi
printf '%s\n' "$flags"
