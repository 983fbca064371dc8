#!/usr/bin/env bash
# Reads `go build -v` on standard input and says every hundred packages how far it is. Everything that is not the name of
# a package (an error, say) passes through unchanged.
set -euo pipefail
compiled=0
while IFS= read -r line; do
	if [[ $line =~ ^[A-Za-z0-9._~/-]+$ && $line != *: ]]; then
		compiled=$((compiled + 1))
		if ((compiled % 100 == 0)); then
			printf '  %5d packages compiled, %d s, now at %s\n' "$compiled" "$SECONDS" "$line"
		fi
	else
		printf '%s\n' "$line"
	fi
done
