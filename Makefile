# Everdict. `make help` lists what there is.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
TEST_TIMEOUT ?= 40m
BIN ?= bin

.PHONY: help build dashboard job-runner static desktop desktop-packages demo test test-browser screenshots test-k8s test-nomad bench bench-k8s fuzz race lint deps tools clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# What the dashboard and the desktop app's page are built from, both by one npm run build. Without npm and Node.js 20.19
# or newer, or in a checkout without its sources, the programs are built without them and say so in their place.
WEB := coordinator/dashboard/web
DIST := coordinator/dashboard/dist
PAGE_DIST := desktop/page/dist
WEB_SOURCES := $(shell find $(WEB) -name node_modules -prune -o -type f -print 2>/dev/null)
NPM := $(shell node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)' 2>/dev/null && command -v npm)

dashboard: ## build the dashboard and the desktop app's page, which the next build embeds (needs npm)
	@[ -e $(WEB)/package.json ] || { echo "there is no $(WEB)/package.json" >&2; exit 1; }
	@command -v npm >/dev/null || { echo "the dashboard needs Node.js with npm: https://nodejs.org" >&2; exit 1; }
	cd $(WEB) && npm ci --no-audit --no-fund && npm run build
	@touch $(DIST)/.gitkeep $(DIST)/index.html $(PAGE_DIST)/.gitkeep $(PAGE_DIST)/index.html

$(DIST)/index.html: $(WEB_SOURCES)
	@$(MAKE) --no-print-directory dashboard

$(PAGE_DIST)/index.html: $(DIST)/index.html
	@if [ -e $@ ]; then touch $@; else $(MAKE) --no-print-directory dashboard; fi

build: tools $(if $(and $(NPM),$(WEB_SOURCES)),$(DIST)/index.html $(PAGE_DIST)/index.html) ## build bin/everdict
	@[ -e bin/everdict ] || echo "compiling: the first time takes a minute or two, most of it SQLite"
	go build -ldflags '$(LDFLAGS)' -o bin/everdict ./cmd/everdict

job-runner: ## build bin/job-runner, the static runner for images
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/job-runner ./cmd/job-runner

static: tools $(if $(and $(NPM),$(WEB_SOURCES)),$(DIST)/index.html) ## build bin/everdict-static, linked to nothing, for images
	go build -tags netgo,osusergo -ldflags '$(LDFLAGS) -linkmode external -extldflags -static' -o $(BIN)/everdict-static ./cmd/everdict

desktop: $(if $(and $(NPM),$(WEB_SOURCES)),$(PAGE_DIST)/index.html) ## build bin/everdict-desktop, the desktop app
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/everdict-desktop ./cmd/everdict-desktop

desktop-packages: build ## make the .deb, Windows and macOS packages of the desktop app in .cache/packages
	go run ./desktop/packaging -version '$(VERSION)' -cli bin/everdict -out .cache/packages

demo: build ## start a coordinator and a runner, submit a run with curl, show its evidence
	./e2e/demo.sh

test: tools ## run the tests; ends with one line that counts them (SUITES="browser go k8s" adds those of a cluster)
	-@./e2e/docker.sh # without an engine its tests fail, and the others run
	./e2e/test.sh

test-browser: build desktop ## run the tests of the dashboard and of the desktop app's window, in a real browser
	./e2e/browser/test.sh

screenshots: build desktop ## pictures of every page of the dashboard and of the desktop app into .cache/screenshots
	@./e2e/browser/deps.sh
	@./e2e/desktop/deps.sh
	node e2e/browser/screenshots.mjs
	node e2e/browser/screenshots-desktop.mjs

test-k8s: tools ## set up a real Kubernetes, run the tests that need one, tear it down (KEEP=1 keeps it)
	./e2e/k8s/test.sh

test-nomad: ## run the tests of the fleet on Nomad, against a stand-in or, with NOMAD_ADDR and NOMAD_TOKEN, a real cluster
	@./e2e/docker.sh
	go test -count=1 -timeout "$(TEST_TIMEOUT)" ./coordinator/fleet/nomad ./e2e/nomad $(if $(NOMAD_ADDR),-skip '^TestStandin')

bench-k8s: tools ## measure what docs/benchmarks.md reports of a real Kubernetes
	./e2e/k8s/bench.sh

race: deps ## run every test under the race detector (slow)
	go test -race -timeout 60m ./...

bench: build ## run the benchmarks that docs/benchmarks.md reports
	./e2e/bench.sh

fuzz: ## run every fuzz target for FUZZTIME (default 30s)
	./e2e/fuzz.sh

lint: ## gofmt and vet, for every supported system
	test -z "$$(git ls-files -z "*.go" | xargs -0 gofmt -l)"
	go vet ./...
	go vet -tags kube ./e2e/kube
	GOOS=darwin CGO_ENABLED=0 go vet ./agent/... ./protocol/... ./desktop/... ./cmd/everdict-desktop
	GOOS=windows CGO_ENABLED=0 go vet ./agent/... ./protocol/... ./desktop/... ./cmd/everdict-desktop

deps: tools ## install and start what the build and the tests need and is missing
	@./e2e/docker.sh
	@./e2e/browser/deps.sh
	@./e2e/desktop/deps.sh

tools:
	@./e2e/tools.sh

clean: ## remove what was built
	rm -rf bin .cache $(WEB)/node_modules
	find $(DIST) $(PAGE_DIST) -mindepth 1 ! -name .gitkeep -delete
