# Everything that is built, shown and checked here. `make` and `make help` tell the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# Asked for when a recipe runs: by then set-up has seen to git.
VERSION = $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
FUZZTIME ?= 10s

# One static binary that tells its commit, where git will say: it refuses in a clone that is someone else's.
stamp = $(shell git status --porcelain >/dev/null 2>&1 && echo true || echo false)
go_build = CGO_ENABLED=0 go build -trimpath -buildvcs=$(stamp)
ldflags = -s -w -X github.com/waymark-net/waymark/internal/obs.version=$(VERSION)

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
	go generate ./...
	@mkdir -p $(@D) && touch $@

.PHONY: build
build: generate ## Make bin/waymark, one static binary
	$(go_build) -ldflags '$(ldflags)' -o bin/waymark ./cmd/waymark

.PHONY: bin/waymark-bench
bin/waymark-bench: generate
	$(go_build) -ldflags '$(ldflags)' -o $@ ./cmd/waymark-bench

build/NOTICE: go.mod scripts/notices
	@mkdir -p $(@D)
	@scripts/notices >$@

.PHONY: install
install: build build/NOTICE ## Install bin/waymark as a service (as root), or below DESTDIR
	@scripts/install "$(DESTDIR)"

.PHONY: archive
archive: build build/NOTICE ## Pack what install installs: build/waymark-VERSION-linux-ARCH.tar.gz
	@scripts/archive "$(VERSION)"

.PHONY: demo
demo: setup-demo build ## A network on this machine, its flows, and how exact they are (as root)
	bin/waymark lab demo

.PHONY: test
test: setup-test build build/NOTICE ## All tests, in a sandbox, every skip accounted for (as root)
	@go build -o build/runner ./test/runner
	@build/runner -skips test/skips.txt ./...

.PHONY: golden
golden: setup-build generate ## Write what programs cost again, after a deliberate change (as root)
	go test -count=1 -run '^TestCost$$' ./internal/datapath -update

.PHONY: lint
lint: setup-lint build ## Formats, static analysis, documents that drifted from the code
	@scripts/lint

.PHONY: fuzz
fuzz: generate ## Every fuzz test for FUZZTIME (10s)
	@scripts/fuzz $(FUZZTIME)

.PHONY: bench
bench: setup-demo build bin/waymark-bench ## The cost of each program and stage on this machine (as root)
	bin/waymark-bench datapath

.PHONY: docs
docs: build ## Write docs/reference from the code
	bin/waymark gendocs docs/reference

.PHONY: clean
clean: ## Remove what was made here; .cache, with the kernels for tests, stays
	rm -rf bin build
	find internal -name '*_bpfe[lb].go' -delete -o -name '*_bpfe[lb].o' -delete
