#!/usr/bin/env bash
# Regenerates everything that is generated and committed; with `bpf` only the BPF programs. `tools/generate.sh check` fails when that changes a file, or when a
# generated file was never added to git.
set -euo pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0 PATH="$PWD/.tools/bin:$PATH"

# Where generated files live; each is checked.
generated() {
	find api proto internal deploy/crd \
		\( -name '*.pb.go' -o -name 'zz_generated.*.go' -o -path 'deploy/crd/*/*.yaml' -o -name '*_bpfel.go' -o -name '*_bpfel.o' \) \
		-type f | sort
}

# One line a file. The comment that names protoc's own version is left out: distributions differ, the code does not.
fingerprint() {
	local file
	while read -r file; do
		printf '%s %s\n' "$(grep -av '^// 	protoc  ' "$file" | sha256sum | cut -d' ' -f1)" "$file"
	done < <(generated)
}

# One object of BPF, and Go types of what it shares with Go: the package's folder, the name that types begin with, the file, and types
# that no map names.
object() {
	local dir=$1 stem=$2 file=$3 types=() name
	shift 3
	for name in "$@"; do
		types+=(-type "$name")
	done
	GOPACKAGE=$(basename "$dir") bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -output-dir "$dir" "${types[@]}" \
		-cflags "-O2 -g -mcpu=v3 -Wall -Wextra -Werror -Wno-unused-parameter -I/usr/include/$(uname -m)-linux-gnu" "$stem" "$file"
}

# The BPF programs, for all machines of one byte order.
bpf() {
	object internal/driver/bpf lib bpf/lib/types.c capture reason next_hop_flag
	object internal/driver/bpf/testdata test bpf/lib/test.c
	object internal/driver/lb/xdp bpf bpf/fairlead.c capture hop_option reason mode frontend_flag backend_flag next_hop_flag flow_hash flow_state flow_event flow_event_kind flow_reason hop_flag
	# The same programs for benchmarks, in a loop.
	object lab/packet bench bpf/lb/bench.c mode frontend_flag backend_flag next_hop_flag
}

generate() {
	local file
	bpf
	while read -r file; do
		protoc --go_out=. --go_opt=module=fairlead.dev --go-grpc_out=. --go-grpc_opt=module=fairlead.dev "$file"
	done < <(find proto -name '*.proto' | sort)
	controller-gen object paths=./api/...
	# One folder for each API group: deploy/crd/<folder> holds the resources of ./api/<package>.
	controller-gen crd paths=./api/v1alpha1/... output:crd:dir=deploy/crd/fairlead
	controller-gen crd paths=./api/contour/... output:crd:dir=deploy/crd/contour
	go mod download sigs.k8s.io/gateway-api # its CRDs are copied out of the module cache
	deploy/crd/sync.sh
}

case ${1:-} in
"") generate ;;
bpf) bpf ;;
check)
	before=$(fingerprint)
	generate
	if ! stale=$(diff <(printf '%s\n' "$before") <(fingerprint)); then
		printf 'generated: these files were stale; they are fresh now, commit them:\n'
		awk '/^[<>]/ { print "  " $3 }' <<<"$stale" | sort -u
		exit 1
	fi
	# shellcheck disable=SC2046 # paths of generated files hold no spaces
	missing=$(git -c safe.directory='*' ls-files --others --exclude-standard -- $(generated))
	if [[ -n $missing ]]; then
		printf 'generated: not in git, add them:\n%s\n' "$missing"
		exit 1
	fi
	printf 'generated: %d files, all fresh\n' "$(generated | wc -l)"
	;;
*)
	printf 'usage: %s [bpf|check]\n' "$0" >&2
	exit 2
	;;
esac
