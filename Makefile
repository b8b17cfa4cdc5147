# Everything that is built, shown and checked here. `make` and `make help` tell the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# Asked for when a recipe runs: by then set-up has seen to git.
VERSION = $(shell git describe --tags --always --dirty 2>/dev/null | sed 's/^v//' | grep . || echo unknown)
FUZZTIME ?= 10s

# scripts/build adds what only the agent needs.
export GOFLAGS := $(shell scripts/goflags)
export CGO_ENABLED := 0

bpf := $(wildcard bpf/*.[ch] bpf/*/*.[ch])
generators := $(shell grep -rl --include='*.go' '^//go:generate' cmd internal)

.PHONY: help
help: ## What there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup setup-%
setup: ## Install what is missing on Debian 12 (as root)
	@scripts/setup
setup-%:
	@scripts/setup $*

.PHONY: generate
generate: setup-build build/generated ## Compile bpf/ and write the Go code for it
build/generated: $(bpf) $(generators) go.mod
	@$(MAKE) -s clean-generated # files that an earlier version wrote under other names do not compile
	go generate ./...
	@mkdir -p $(@D) && touch $@

web := $(filter-out $(wildcard web/src/*.test.ts),$(wildcard web/package*.json web/src/*.* web/src/*/*.*))
build/console/built: $(web) scripts/console | setup-console # the console, which the binary embeds
	@scripts/console
	@touch $@

.PHONY: build
build: generate build/console/built ## Make bin/waymark, and bin/waymark-analyze and -kafka that it runs: static binaries
	@scripts/build "$$(go env GOARCH)" "$(VERSION)" bin/waymark
	@scripts/build "$$(go env GOARCH)" "$(VERSION)" bin/waymark-analyze ./cmd/waymark-analyze
	@scripts/build "$$(go env GOARCH)" "$(VERSION)" bin/waymark-kafka ./cmd/waymark-kafka

.PHONY: bin/waymark-bench
bin/waymark-bench: generate
	@scripts/build "$$(go env GOARCH)" "$(VERSION)" $@ ./cmd/waymark-bench

build/NOTICE: go.mod scripts/notices build/console/built
	@mkdir -p $(@D)
	@scripts/notices >$@

.PHONY: install
install: build build/NOTICE ## Install them as services (as root), or below DESTDIR
	@scripts/install "$(DESTDIR)"

.PHONY: archive
archive: build build/NOTICE ## Pack what install installs: build/waymark-VERSION-linux-ARCH.tar.gz
	@scripts/release "$(VERSION)" build "$$(go env GOARCH)"

.PHONY: release
release: build build/NOTICE ## Archives for every processor, checksums, bills of materials: build/release
	@rm -rf build/release
	@scripts/release "$(VERSION)" build/release

.PHONY: demo
demo: setup-demo build ## A network on this machine, its flows, and how exact they are (as root); DEMO_KEEP=1 leaves a console to explore
	bin/waymark lab demo $(if $(filter 1,$(DEMO_KEEP)),--keep)

.PHONY: test
test: setup-test build build/NOTICE ## All tests, in a sandbox, every skip accounted for (as root)
	@scripts/console check
	@go build -o build/runner ./test/runner
	@E2E_BINARY="$(CURDIR)/bin/waymark" build/runner -skips test/skips.txt ./...

soaked = $(shell grep -rl --include='*_test.go' 'waymark/test/soak"' . | xargs -r -n1 dirname | sort -u)

.PHONY: soak
soak: setup-test build build/NOTICE ## The tests that repeat something many times, at full length: hours (as root)
	@go build -o build/runner ./test/runner
	@SOAK=1 E2E_BINARY="$(CURDIR)/bin/waymark" build/runner -timeout 3h -skips test/skips.txt $(soaked)

.PHONY: golden
golden: setup-build generate ## Write what programs cost again, after a deliberate change (as root)
	go test -count=1 -run '^TestCost$$' ./internal/datapath -update

.PHONY: lint
lint: setup-lint build ## Formats, static analysis, documents that drifted from the code
	@scripts/lint

.PHONY: apidiff
apidiff: ## Changes of the public Go API (wire/, tap/) since BASE, by default the newest tag
	@scripts/apidiff "$(BASE)"

.PHONY: fuzz
fuzz: generate ## Every fuzz test for FUZZTIME (10s)
	@scripts/fuzz $(FUZZTIME)

.PHONY: bench
bench: setup-demo setup-bench build bin/waymark-bench ## The cost of each program and stage on this machine (as root)
	bin/waymark-bench datapath

.PHONY: docs
docs: generate ## Write docs/reference from the code
	go test -count=1 -run "^TestReference$$" ./cmd/waymark -update
	go test -count=1 -run "^TestTypes$$" ./internal/console/browser -update

.PHONY: clean-generated
clean-generated: # and what remembers that it is there
	rm -rf build/generated internal/datapath/run-make-build_see-README
	find internal -name '*_bpfe[lb].go' -delete -o -name '*_bpfe[lb].o' -delete

.PHONY: clean
clean: clean-generated ## Remove what was made here; .cache, with the kernels for tests, stays
	rm -rf bin build web/node_modules
	rm -f internal/console/assets/app.*.gz
