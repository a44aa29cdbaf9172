# rolltrace. `make` alone prints this help.
.DEFAULT_GOAL := help
GO ?= go
BIN := bin/rolltrace
TOOL = cd tools && $(GO) tool
PKGS := ./...
README = bin/readme

.PHONY: help
help: ## print this help
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/rolltrace
	$(GO) build -o $(BIN) ./cmd/rolltrace

.PHONY: demo
demo: build ## verify four recorded rolls against the embedded store
	$(BIN) demo

.PHONY: test
test: lint ## lint, then every test under the race detector
	$(GO) test -count=1 .
	$(GO) test -race $(PKGS)
	cd tools && $(GO) test ./...

.PHONY: lint
lint: ## gofumpt, go vet, staticcheck, and who may touch the process
	@out=$$($(TOOL) gofumpt -l .. | grep -v '\.pb\.go$$' || true); if [ -n "$$out" ]; then echo "not gofumpt-ed:"; echo "$$out"; exit 1; fi
	$(GO) vet $(PKGS)
	cd tools && $(GO) build -o ../bin/staticcheck honnef.co/go/tools/cmd/staticcheck
	bin/staticcheck $(PKGS)
	cd tools && $(GO) vet ./... && $(GO) run ./lint ..

.PHONY: fmt
fmt: ## format every file
	$(TOOL) gofumpt -w ..

.PHONY: bench
bench: ## speed: recordings, correlation, verify offline on a million spans
	$(GO) test -run XXX -bench . -benchmem -timeout 30m ./correlate ./query/otlp ./verify

.PHONY: e2e
e2e: ## every scenario on a real cluster, as root; writes docs/e2e.md (ten minutes, and ten more the first time)
	$(MAKE) -C e2e e2e

.PHONY: bench-record
bench-record: build ## the recorder against a simulated API server: 20,000 pods, 1,000 events a second, 500 logs
	cd e2e && $(GO) build -o ../bin/benchrecord ./cmd/benchrecord
	bin/benchrecord -rolltrace $(BIN)

.PHONY: fuzz
fuzz: ## each fuzz test for FUZZTIME (20s)
	@for p in $$($(GO) list $(PKGS)); do for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz'); do \
		echo "$$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $${FUZZTIME:-20s} -fuzzminimizetime 2s $$p || exit 1; done; done

.PHONY: conformance
conformance: ## the backend suite against a real Tempo: ROLLTRACE_TEMPO_ADDR=http://127.0.0.1:3200 make conformance
	$(GO) test -count 1 -tags conformance -run Conformance -v ./query/tempo

.PHONY: readme
readme: build ## put the demo's output and the benchmarks' figures into README.md
	cd tools && $(GO) build -o ../$(README) ./readme
	$(BIN) demo 2>/dev/null | $(README) README.md demo 31
	$(MAKE) --no-print-directory bench | grep -E '^(cpu|Benchmark(Recording|Correlate/|Verify))' | awk '!seen[$$0]++' | \
		sed -E 's/[[:space:]]+[0-9]+ B\/op.*//; s/^(Benchmark[^[:space:]]+)-[0-9]+/\1/; s/[[:space:]]+/ /g' | $(README) README.md bench
	$(MAKE) --no-print-directory bench-record | grep -v '^cd\|^go\|^bin' | $(README) README.md bench-record

.PHONY: generate
generate: ## regenerate the wire types and the references in docs/
	cd tools && $(GO) run ./protogen ../query/tempo/tempopb/tempo.proto
	$(GO) run ./cmd/rolltrace assertions --markdown > docs/assertions.md
	$(GO) run ./cmd/rolltrace docs > docs/cli.md
