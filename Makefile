# Two commands are enough: `make run` and `make test`.

BIN := $(or $(CARGO_TARGET_DIR),target)/debug

.DEFAULT_GOAL := help
.PHONY: help run build test bench fmt lint dnsmasq tools

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: dnsmasq build ## Run the whole pod on loopback, on examples/cluster (ARGS="--help" shows the options)
	@exec $(BIN)/localpod $(ARGS)

build: ## Build all binaries
	cargo build --workspace --bins

test: tools lint build ## Check everything: formatting, lints, all tests
	cargo test --workspace --doc --quiet
	@if cargo nextest --version >/dev/null 2>&1; then \
		cargo nextest run --workspace --no-fail-fast; \
	else \
		cargo test --workspace --bins --lib --tests --no-fail-fast; \
	fi

bench: ## Measure the release build, write docs/performance.md (ARGS="--only cost", ARGS="--help")
	@.ci/need dnsperf dnsperf "the benchmark's load"
	cargo build --release -p kubedns -p bench
	$(dir $(BIN))release/bench --write docs $(ARGS)

fmt: ## Format the code
	cargo fmt --all

lint: ## Check formatting and lints
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

dnsmasq: # Before the build, so that its absence shows at once.
	@.ci/need dnsmasq dnsmasq-base "the cache in front of kubedns"

tools: dnsmasq # What the tests start besides our own binaries.
	@.ci/need dig bind9-dnsutils "the end-to-end tests ask with it"
	@.ci/need kubectl kubernetes-client "the end-to-end tests change the cluster with it"
