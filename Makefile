# Two commands are enough: `make run` and `make test`.

BIN := $(or $(CARGO_TARGET_DIR),target)/debug
# Incremental files make the first build a fifth slower, and the next ones several times faster. So a tree has them from the
# first build with cargo itself (or with CARGO_INCREMENTAL=1) on, and nothing is built twice.
export CARGO_INCREMENTAL ?= $(if $(wildcard $(BIN)/incremental/*),1,0)
# Most tests wait more than they compute, so three run at once on two cores.
TEST_THREADS := $(shell expr $$(getconf _NPROCESSORS_ONLN) \* 3 / 2)

.DEFAULT_GOAL := help
.PHONY: help run build test bench soak images release fuzz fmt lint deny locked supply rust dnsmasq tools

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: rust dnsmasq ## Run the whole pod on loopback, on examples/cluster (ARGS="--help" shows the options)
	cargo build -p localpod -p kubedns -p nanny -p sidecar
	@exec $(BIN)/localpod $(ARGS)

build: rust ## Build all binaries
	cargo build --workspace --bins

test: tools locked lint build supply ## Check everything: formatting, lints, all tests
	cargo test --workspace --doc --quiet
	@if cargo nextest --version >/dev/null 2>&1; then \
		cargo nextest run --workspace --no-fail-fast --test-threads $(TEST_THREADS); \
	else \
		cargo test --workspace --bins --lib --tests --no-fail-fast; \
	fi

bench: ## Measure the release build, write docs/performance.md (ARGS="--only cost", ARGS="--help")
	@.ci/need dnsperf dnsperf "the benchmark's load"
	cargo build --release --workspace --bin kubedns --bin bench
	$(dir $(BIN))release/bench --write docs $(ARGS)

FUZZ_SECONDS ?= 60

fuzz: ## Run each fuzzer for FUZZ_SECONDS, 60 unless given (ARGS="query watch" chooses)
	@fuzz/run $(FUZZ_SECONDS) $(ARGS)

images: dnsmasq ## Build the static images, write them to out/images, play the pods with them
	@.ci/need podman podman "builds images and plays pods"
	images/archive out/images
	KUBE_DNS_RS_IMAGES=$(CURDIR)/out/images cargo test -p tests --test pod

release: images ## Gather images, lists of components, manifests and checksums in out/release
	@.ci/need jq jq "writes the lists of components"
	images/release out/images out/release

soak: dnsmasq ## Run the release build for 30 minutes under load and change, watch for growth (MINUTES=5, ARGS="--direct")
	cargo build --release --workspace --bins
	$(dir $(BIN))release/soak --minutes=$(or $(MINUTES),30) $(ARGS)

fmt: ## Format the code
	cargo fmt --all

lint: ## Check formatting, lints and spelling
	cargo fmt --all --check
	@if typos --version >/dev/null 2>&1; then \
		typos; \
	else \
		echo "WARNING: typos is not installed. Spelling is NOT checked. (cargo install --locked typos-cli, or pip install typos)" >&2; \
	fi
	cargo clippy --workspace --all-targets -- -D warnings

deny: ## Check the dependencies with cargo-deny: licences, duplicates, sources, known faults (fetches the advisories)
	cargo deny --locked check

# The parts of it that need nothing but the crates themselves. tests/tests/supply_chain.rs holds the essentials with cargo
# alone.
supply:
	@if cargo deny --version >/dev/null 2>&1; then \
		cargo deny --locked check bans licenses sources; \
	else \
		echo "WARNING: cargo-deny is not installed. Duplicate and banned crates are NOT checked. (cargo install --locked cargo-deny)" >&2; \
	fi

locked: # Before cargo brings the two Cargo.lock up to date by itself.
	@cargo fetch --locked --target x86_64-unknown-linux-gnu
	@cargo fetch --locked --target x86_64-unknown-linux-gnu --manifest-path fuzz/Cargo.toml

rust: # Before anything is installed, so that its absence shows in a line of its own.
	@.ci/rust

dnsmasq: # Before the build, so that its absence shows at once.
	@.ci/need dnsmasq dnsmasq-base "the cache in front of kubedns"

tools: dnsmasq # What the tests start besides our own binaries.
	@.ci/need dig bind9-dnsutils "the end-to-end tests ask with it"
	@.ci/need kubectl kubernetes-client "the end-to-end tests change the cluster with it"
	@.ci/need faketime faketime "makes the clock jump under the chaos tests"
	@.ci/need etcd etcd-server "zones from etcd are tested with a real one"
