#!/bin/sh
# Copy Gateway API's standard channel from the module that go.mod names into gateway/.
# Run it again after the module's version changed.
set -eu
cd "$(dirname "$0")"
source=$(go list -m -f '{{.Dir}}' sigs.k8s.io/gateway-api)/config/crd/standard
find gateway -name '*.yaml' -delete
for file in "$source"/*.yaml; do
	install -m 0644 "$file" gateway/
done
