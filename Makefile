# `make` alone prints this file's help. Everything that a target needs and the machine lacks is installed by tools/setup.sh.
SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS   += --no-print-directory

# No C compiler is needed, and one value everywhere means one build cache: the embedded API server is compiled once.
export CGO_ENABLED := 0
# The version comes from tools/ldflags.sh; asking git in every build fails on clones that belong to another user.
export GOFLAGS := $(filter-out -buildvcs=%,$(GOFLAGS)) -buildvcs=false
# The programs that demo and tests run. Both can be set from outside.
export FAIRLEAD_ENVOY   ?= $(CURDIR)/.tools/envoy
export FAIRLEAD_KUBECTL ?= $(CURDIR)/bin/kubectl
export PATH := $(CURDIR)/.tools/bin:$(PATH)

# Packages whose tests need root: network namespaces, mounts, BPF.
ROOT_PACKAGES ?= ./lab/... ./test/... ./internal/driver/... ./internal/embedded/...
# Narrow a run: make test PACKAGES=./internal/delta/... TESTFLAGS='-run Nack'
# Packages start in this order: the longest first, those that wait for networks, peers and programs, and what only computes beside them.
PACKAGES  ?= ./test/... ./internal/driver/bgp ./internal/driver/lb/... ./internal/plane ./internal/xds ./internal/agent ./internal/embedded ./lab/... ./internal/driver/... ./...
TESTFLAGS ?=
# Two packages more at a time than there are processors, since the long ones mostly wait. The linters run govet.
# Every plane that a test starts is an API server, which spends a third of its start collecting garbage at the shipped pace.
TEST = GOGC=200 go test -json -count=1 -timeout 60m -vet=off -p $$(($$(nproc) + 2)) -ldflags="$$(tools/ldflags.sh test)" $(TESTFLAGS)
SUM  = .tools/bin/testsum -skips tools/skips.txt
SCRIPTS = $(shell git -c safe.directory='*' ls-files -co --exclude-standard '*.sh') .ci/run

##@ Start here
.PHONY: help demo test
help: ## Print this help
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@/ { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: build ## See it work: a router, three edges, two clusters, 10,000 requests, and things that die (root)
	@tools/setup.sh demo
	@bin/fairlead lab demo $(if $(PICTURE),--picture $(PICTURE))

test: build ## Everything that CI checks: generated code, linters, guards, all tests (as root also those that need it)
	@tools/setup.sh
	@go build -o .tools/bin/ ./tools/testsum
	@failed=; tools/generate.sh check || failed+=" generated-code"; \
	  $(MAKE) lint || failed+=" lint"; \
	  $(TEST) $(PACKAGES) | $(SUM) || failed+=" tests"; \
	  [[ -z $$failed ]] || { echo "test: failed:$$failed"; exit 1; }

##@ Work on it
.PHONY: build release packages images push manifests generate check-generated fmt lint test-quick test-only test-root setup clean
build: ## Build bin/fairlead
	@[[ -x bin/fairlead ]] || echo "build: the first one compiles kube-apiserver and etcd: about 10 minutes of CPU, once"
	@go build -v -ldflags="$$(tools/ldflags.sh)" -o bin/fairlead ./cmd/fairlead 2>&1 | tools/progress.sh

# Without paths of this machine in it: equal sources give equal programs.
release:
	@echo "release: the first build without paths compiles kube-apiserver and etcd anew: about 10 minutes of CPU, once"
	@go build -v -trimpath -ldflags="$$(tools/ldflags.sh)" -o bin/release/fairlead ./cmd/fairlead 2>&1 | tools/progress.sh

packages: release ## The Debian packages, in bin/packages, with SBOMs: equal sources give equal bytes
	@tools/setup.sh envoy
	@tools/packages.sh bin/release/fairlead "$$FAIRLEAD_ENVOY"

images: release ## The images for Kubernetes, in bin/images: no registry and no daemon needed (deploy/images.txt lists them)
	@tools/setup.sh envoy
	@go run ./tools/images -fairlead bin/release/fairlead -envoy "$$FAIRLEAD_ENVOY" -envoy-version "$$(sed -n s/^envoy_version=//p tools/setup.sh)"

push: ## Push bin/images and their SBOMs: make push REGISTRY=registry.example.com/mirror
	@[[ -n "$${REGISTRY:-}" ]] || { echo "push: say where to: make push REGISTRY=registry.example.com/mirror" >&2; exit 1; }
	@go run ./tools/images -push "$$REGISTRY"

manifests: ## Write deploy/manifests and the plane's rights from the chart and the program (a test compares them)
	@tools/setup.sh helm
	@go test -count=1 ./test/kubernetes -run 'Rights|Manifests' -update

generate: ## Regenerate protobufs, deepcopy functions and CRDs
	@tools/setup.sh generate
	@tools/generate.sh

check-generated: ## Fail if generated code is not what `make generate` writes
	@tools/setup.sh generate
	@tools/generate.sh check

fmt: ## Format the Go code (gofumpt) and the C (clang-format)
	@tools/setup.sh lint
	@clang-format-19 -i $$(find bpf -name "*.[ch]")
	@gofumpt -l -w $$(git ls-files -co --exclude-standard '*.go' | grep -Ev '\.pb\.go$$|zz_generated')

lint: ## Run golangci-lint, clang-format and shellcheck
	@tools/setup.sh lint
	@GOMEMLIMIT=3GiB golangci-lint run --allow-parallel-runners # a first run takes 4 GB otherwise
	@clang-format-19 --dry-run --Werror $$(find bpf -name "*.[ch]")
	@shellcheck -x $(SCRIPTS) && echo "shellcheck: $(words $(SCRIPTS)) scripts, 0 issues"

test-quick: ## Guards and tests that take seconds, with cached results
	@go test -count=1 ./internal/guard
	@go test -short -ldflags="$$(tools/ldflags.sh test)" $(TESTFLAGS) $(PACKAGES)

test-only: build ## Only the tests of PACKAGES, without linters
	@tools/setup.sh demo test cluster debian uml openstack
	@go build -o .tools/bin/ ./tools/testsum
	@$(TEST) $(PACKAGES) | $(SUM)

test-root: build ## Only the packages whose tests need root, and no skip for want of it
	@[[ $$(id -u) == 0 ]] || { echo "test-root: run as root: these tests make network namespaces and mounts" >&2; exit 1; }
	@tools/setup.sh demo test cluster debian uml openstack
	@go build -o .tools/bin/ ./tools/testsum
	@$(TEST) $$(go list $(ROOT_PACKAGES) 2>/dev/null) | $(SUM)

conformance: build ## The Gateway API's conformance suite in a real cluster, with both sets of definitions; writes the reports (root; 3 minutes)
	@[[ $$(id -u) == 0 ]] || { echo "conformance: run as root: clusters are made of namespaces" >&2; exit 1; }
	@tools/setup.sh demo cluster
	@go build -o .tools/bin/ ./tools/testsum
	@FAIRLEAD_CONFORMANCE_REPORTS=$(CURDIR)/docs/reference/conformance $(TEST) ./test/conformance | $(SUM)

setup: ## Install everything that any target needs
	@tools/setup.sh
	@echo "setup: nothing is missing"

clean: ## Remove what was built here (not the tools in .tools, not Go's cache)
	rm -rf bin bench/out .demo .tools/kubectl.stamp

##@ Measure it (JSON in bench/out)
.PHONY: bench bench-start bench-delta bench-translate bench-bgp bench-ecmp bench-routes bench-edge bench-lb bench-survival bench-health bench-e2e bench-scale bench-discovery bench-seeing
bench: bench-start bench-delta bench-translate bench-lb bench-routes bench-edge bench-survival bench-health bench-e2e bench-scale bench-discovery bench-seeing bench-bgp bench-ecmp ## All benchmarks: an hour and a half
bench-start: build ## Time from exec to ready, memory of plane and agent (root)
	@tools/setup.sh envoy
	@bin/fairlead lab bench start
bench-delta: build ## Cost of one change for 1, 100 and 1,000 subscribers
	@bin/fairlead lab bench delta
bench-translate: build ## Cost of one change among 20,000 routes and 100,000 endpoints
	@bin/fairlead lab bench translate
bench-bgp: build ## How soon BIRD and FRR follow edges that come, go and die, and what clients lose (root; 18 minutes)
	@tools/setup.sh demo frr
	@bin/fairlead lab bench bgp
bench-routes: build ## What 100 to 20,000 routes cost, and how soon a change of one is served (root; 15 minutes)
	@tools/setup.sh demo
	@bin/fairlead lab bench routes
bench-scale: build ## What one plane carries: 1,000 simulated agents over mutual TLS, 20,000 routes (root; 15 minutes, 12 GB)
	@tools/setup.sh demo
	@bin/fairlead lab bench scale
bench-discovery: build ## How soon changes in clusters and clouds are followed, and one plane with 160 of them (root; 25 minutes, 8 GB)
	@tools/setup.sh demo openstack
	@bin/fairlead lab bench discovery
bench-seeing: build ## What metrics, top and the read API cost with 20,000 routes (root; 12 minutes, 10 GB)
	@tools/setup.sh demo
	@bin/fairlead lab bench seeing
bench-edge: build ## Latency and processor time of Envoy by routes, endpoints and prefixes (8 minutes)
	@tools/setup.sh envoy
	@bin/fairlead lab bench edge
bench-lb: build ## What one packet costs the XDP load balancer, by kind and mode (root; 3 minutes)
	@bin/fairlead lab bench lb
bench-survival: build ## What 10,000 open connections survive: load balancers and backends come, drain and die (root; 25 minutes)
	@tools/setup.sh demo
	@bin/fairlead lab bench survival
bench-health: build ## Until when a dead backend gets new connections (root; 5 minutes)
	@tools/setup.sh demo
	@bin/fairlead lab bench health
bench-e2e: build ## HTTP through XDP, nftables, HAProxy, nginx and Envoy, compared with none (root; 12 minutes)
	@tools/setup.sh demo bench
	@bin/fairlead lab bench e2e
bench-ecmp: build ## The number of edges changes at random: delay of the router, throughput; two plots (root; 5 minutes)
	@tools/setup.sh demo frr
	@bin/fairlead lab bench ecmp
