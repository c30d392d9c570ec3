# Everything a person or a machine does to this repository starts here; `make help` lists it.
# Only the Go toolchain is needed; `make conformance` and `make client` also need Node 20.

GO        ?= go
LISTEN    ?= 127.0.0.1:4437
DATA_DIR  ?= ./data
STORE     ?= embedded
FRONTENDS ?= 1
SURFACE   ?= base
FUZZTIME  ?= 20s
BENCHTIME ?= 1s

# FoundationDB's client library is used where the system's C compiler can include its header and
# link it; the yes is remembered in bin/, a no is asked again, so that installing it is noticed.
# FDB=0 or FDB=1 overrules the probe.
FDB ?= $(shell sh ci/fdbclient-probe.sh bin/.fdbclient)
ifeq ($(FDB),1)
export CGO_ENABLED = 1
TAGS = -tags foundationdb
else
export CGO_ENABLED = 0
TAGS =
endif

.PHONY: help run build test race lint fmt bench conformance client extensions fuzz check clean

help: ## list these targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-12s %s\n", $$1, $$2 }'

run: build ## build, and serve on $(LISTEN) from the embedded engine, durable in $(DATA_DIR)
	./bin/headwater serve --listen $(LISTEN) --store embedded --data-dir $(DATA_DIR)

build: ## build bin/headwater (with FoundationDB where its client library is installed)
ifeq ($(FDB),1)
	@echo "FoundationDB's client library is here: building with -tags foundationdb"
else
	@echo "no FoundationDB client library: building pure Go, stores embedded and memory"
endif
	$(GO) build $(TAGS) -o bin/headwater ./cmd/headwater

test: ## run every test that needs no cluster (those on FoundationDB too, where one can be had)
	$(GO) test $(TAGS) ./...

race: export CGO_ENABLED = 1
race: ## the same under the race detector (needs a C compiler)
	$(GO) test -race $(TAGS) ./...

lint: ## gofmt, go vet, golangci-lint
	$(GO) run ./ci/drive check --only fmt,vet,lint

fmt: ## format the sources
	gofmt -w $$(git ls-files '*.go')

bench: ## run the Go benchmarks
	$(GO) test $(TAGS) -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) ./...

conformance: ## the public conformance suite: STORE=embedded|memory|fdb FRONTENDS=n SURFACE=base|bucket
	$(GO) run ./ci/drive conformance --store $(STORE) --frontends $(FRONTENDS) --surface $(SURFACE)

client: ## the official TypeScript client, end to end: STORE, FRONTENDS, SURFACE
	$(GO) run ./ci/drive client --store $(STORE) --frontends $(FRONTENDS) --surface $(SURFACE)

extensions: ## our black-box suite of the extension spec: STORE, FRONTENDS, SURFACE
	$(GO) run ./ci/drive extensions --store $(STORE) --frontends $(FRONTENDS) --surface $(SURFACE)

fuzz: ## run every fuzz target for $(FUZZTIME)
	@for p in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz'); do \
	    echo "== $$p $$f"; \
	    $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$p || exit 1; \
	  done; \
	done

check: ## all of the above that CI runs, with one summary
	bash .ci/run

clean: ## remove what was built; data stays
	rm -rf bin ci/conformance/node_modules ci/conformance/results
