# Two commands are enough: `make run` and `make test`.

BIN := $(or $(CARGO_TARGET_DIR),target)/debug
# Incremental compilation makes the first build a fifth slower, and later builds several times faster. So `make` uses
# it only in a tree that already has incremental files, from cargo itself or from `make` with CARGO_INCREMENTAL=1.
export CARGO_INCREMENTAL ?= $(if $(wildcard $(BIN)/incremental/*),1,0)
# Most tests wait more than they compute, so three tests run at once on two cores.
TEST_THREADS := $(shell expr $$(getconf _NPROCESSORS_ONLN) \* 3 / 2)

.DEFAULT_GOAL := help
.PHONY: help run build test bench soak images release fuzz fmt lint deny locked supply rust dnsmasq tools

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: rust dnsmasq ## Run the whole pod on loopback, with the cluster in examples/cluster (ARGS="--help" shows the options)
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

fuzz: ## Run each fuzzer for FUZZ_SECONDS, by default 60 (ARGS="query watch" runs only these two)
	@fuzz/run $(FUZZ_SECONDS) $(ARGS)

images: dnsmasq ## Build the static images, write them to out/images, run the pod tests with them
	@.ci/need podman podman "builds images and runs pods"
	images/archive out/images
	KUBE_DNS_RS_IMAGES=$(CURDIR)/out/images cargo test -p tests --test pod

release: images ## Gather images, lists of components, manifests and checksums in out/release
	@.ci/need jq jq "writes the lists of components"
	images/release out/images out/release

soak: dnsmasq ## Run the release build for 30 minutes under load and changes, check that resources do not grow (MINUTES=5, ARGS="--direct")
	cargo build --release --workspace --bins
	$(dir $(BIN))release/soak --minutes=$(or $(MINUTES),30) $(ARGS)

fmt: ## Format the code
	cargo fmt --all

# Alone, treecache must name each feature that it needs. In the workspace, other crates turn on features for it.
lint: ## Check formatting, lints, spelling and links in doc comments
	cargo fmt --all --check
	@if typos --version >/dev/null 2>&1; then \
		typos; \
	else \
		echo "WARNING: typos is not installed. Spelling is NOT checked. (cargo install --locked typos-cli, or pip install typos)" >&2; \
	fi
	cargo clippy --workspace --all-targets -- -D warnings
	cargo check --quiet --package treecache
	RUSTDOCFLAGS="-D warnings" cargo doc --quiet --workspace --no-deps --document-private-items

deny: ## Check the dependencies with cargo-deny (licences, duplicates, sources, known vulnerabilities), and the pinned actions (needs network)
	cargo deny --locked check
	.ci/pins

# The checks of `make deny` that need no advisories. tests/tests/supply_chain.rs checks the most important rules, with
# cargo alone.
supply:
	@if cargo deny --version >/dev/null 2>&1; then \
		cargo deny --locked check bans licenses sources; \
	else \
		echo "WARNING: cargo-deny is not installed. Duplicate and banned crates are NOT checked. (cargo install --locked cargo-deny)" >&2; \
	fi

locked: # Fails if one of the two Cargo.lock files is out of date, before cargo itself updates the file.
	@cargo fetch --locked --target x86_64-unknown-linux-gnu
	@cargo fetch --locked --target x86_64-unknown-linux-gnu --manifest-path fuzz/Cargo.toml

rust: # Comes before all installations, so that one line says that Rust is missing or too old.
	@.ci/rust

dnsmasq: # Comes before the build, so that a missing dnsmasq shows at once.
	@.ci/need dnsmasq dnsmasq-base "the cache in front of kubedns"

tools: dnsmasq # The programs that the tests start, besides our own binaries.
	@.ci/need dig bind9-dnsutils "sends queries in the end-to-end tests"
	@.ci/need kubectl kubernetes-client "changes the cluster in the end-to-end tests"
	@.ci/need faketime faketime "makes the clock jump in the chaos tests"
	@.ci/need etcd etcd-server "serves zones in the tests of etcd"
