#!/usr/bin/env bash
# Builds the Debian packages into bin/packages, each with the SBOM (CycloneDX) of its program beside it. Equal programs
# and an equal SOURCE_DATE_EPOCH give equal packages, byte for byte, wherever the checkout is.
#
#   tools/packages.sh BINARY ENVOY [OUT]
#
# VERSION and SOURCE_DATE_EPOCH come from the chart and from git, unless the environment has them.
set -euo pipefail
[[ $# -ge 2 ]] || { sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2; }
binary=$(realpath "$1") envoy=$(realpath "$2")
out=$(realpath -m "${3:-bin/packages}")
cd "$(dirname "$0")/.."
umask 022
export LC_ALL=C TZ=UTC SOURCE_DATE_EPOCH
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -c safe.directory='*' log -1 --format=%ct)}

# The chart's version, and before its release the time of the commit: later commits are upgrades.
if [[ -z ${VERSION:-} ]]; then
	VERSION=$(awk '$1 == "appVersion:" { gsub(/"/, "", $2); print $2 }' deploy/chart/fairlead/Chart.yaml)
	if [[ $(git -c safe.directory='*' describe --tags --exact-match 2>/dev/null) != "v$VERSION" ]]; then
		VERSION+="~$(date -d "@$SOURCE_DATE_EPOCH" +%Y%m%d%H%M%S).g$(git -c safe.directory='*' rev-parse --short=12 HEAD)"
	fi
fi
envoy_version=$(sed -n 's/^envoy_version=//p' tools/setup.sh)
architecture=$(dpkg --print-architecture)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$out"

# package NAME VERSION DEPENDS DESCRIPTION: packs $scratch/NAME.
package() {
	local name=$1 version=$2 depends=$3 description=$4 root=$scratch/$1 file
	mkdir -p "$root/DEBIAN" "$root/usr/share/doc/$name"
	install -m 644 LICENSE "$root/usr/share/doc/$name/copyright"
	if [[ -d deploy/debian/$name ]]; then
		for file in deploy/debian/"$name"/*; do install -m 755 "$file" "$root/DEBIAN/"; done
	fi
	(cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
	cat >"$root/DEBIAN/control" <<-CONTROL
		Package: $name
		Version: $version
		Architecture: $architecture
		Maintainer: Fairlead <maintainers@fairlead.dev>
		Section: net
		Priority: optional
		Homepage: https://fairlead.dev
		Installed-Size: $(du -sk --apparent-size --exclude=DEBIAN "$root" | cut -f1)
	CONTROL
	[[ -z $depends ]] || printf '%s\n' "$depends" >>"$root/DEBIAN/control"
	printf 'Description: %s\n' "$description" >>"$root/DEBIAN/control"
	find "$root" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
	# One thread: with more, what is written depends on how many there are.
	dpkg-deb --root-owner-group --threads-max=1 -Zzstd -z"${LEVEL:-12}" --build "$root" "$scratch/$name.deb" >/dev/null
	mv "$scratch/$name.deb" "$out/${name}_${version}_$architecture.deb"
	echo "$out/${name}_${version}_$architecture.deb"
}

root=$scratch/fairlead
install -D -m 755 "$binary" "$root/usr/bin/fairlead"
"$binary" man "$root/usr/share/man/man1"
gzip -9n "$root"/usr/share/man/man1/*
mkdir -p "$root"/usr/share/{bash-completion/completions,zsh/vendor-completions,fish/vendor_completions.d}
"$binary" completion bash >"$root/usr/share/bash-completion/completions/fairlead"
"$binary" completion zsh >"$root/usr/share/zsh/vendor-completions/_fairlead"
"$binary" completion fish >"$root/usr/share/fish/vendor_completions.d/fairlead.fish"
go run ./tools/sbom/write -version "$VERSION" -program "$binary" -out "$out/fairlead_${VERSION}_$architecture.cdx.json"
install -D -m 644 "$out/fairlead_${VERSION}_$architecture.cdx.json" "$root/usr/share/doc/fairlead/sbom.cdx.json"
package fairlead "$VERSION" "" "load balancer for machines of your own: the program
 BGP, XDP and Envoy, configured with the Gateway API. This is the program with
 its man pages; fairlead-agent and fairlead-plane have systemd run it."

root=$scratch/fairlead-agent
install -D -m 644 deploy/systemd/fairlead-agent.service "$root/usr/lib/systemd/system/fairlead-agent.service"
install -D -m 644 deploy/systemd/fairlead-agent.sysusers "$root/usr/lib/sysusers.d/fairlead-agent.conf"
install -D -m 644 deploy/systemd/fairlead-agent.tmpfiles "$root/usr/lib/tmpfiles.d/fairlead-agent.conf"
package fairlead-agent "$VERSION" "Depends: fairlead (= $VERSION), systemd, passwd
Recommends: fairlead-envoy" "load balancer for machines of your own: the agent
 It runs on each machine that takes traffic or has backends. It starts once
 'fairlead install agent' has told it the plane."

root=$scratch/fairlead-plane
install -D -m 644 deploy/systemd/fairlead-plane.service "$root/usr/lib/systemd/system/fairlead-plane.service"
package fairlead-plane "$VERSION" "Depends: fairlead (= $VERSION), systemd" "load balancer for machines of your own: the plane
 It computes what every machine does, and brings an API along. It starts once
 'fairlead install plane' has enabled it."

root=$scratch/fairlead-envoy
install -D -m 755 "$envoy" "$root/usr/lib/fairlead/envoy"
go run ./tools/sbom/write -version "$envoy_version" -envoy "$envoy" -out "$out/fairlead-envoy_${envoy_version}_$architecture.cdx.json"
install -D -m 644 "$out/fairlead-envoy_${envoy_version}_$architecture.cdx.json" "$root/usr/share/doc/fairlead-envoy/sbom.cdx.json"
libc=$(go run ./tools/sbom/write -libc "$envoy")
package fairlead-envoy "$envoy_version" "Depends: libc6 (>= $libc)" "load balancer for machines of your own: Envoy
 The version of Envoy that Fairlead is tested with."
