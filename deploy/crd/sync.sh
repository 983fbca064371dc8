#!/bin/sh
# Copy Gateway API's two channels from the module that go.mod names: the standard one into
# gateway/, of the experimental one what has the same kinds into experimental/.
# Run it again after the module's version changed.
set -eu
cd "$(dirname "$0")"
source=$(go list -m -f '{{.Dir}}' sigs.k8s.io/gateway-api)/config/crd
find gateway experimental -name '*.yaml' -delete
mkdir -p gateway experimental
for file in "$source"/standard/*.yaml; do
	install -m 0644 "$file" gateway/
	install -m 0644 "$source/experimental/$(basename "$file")" experimental/
done
