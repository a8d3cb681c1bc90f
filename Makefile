# Everything one does with this repository. `make` lists it.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help tools controlplane demo test mutate corpus bench soak gen fmt lint clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo '  Needs Rust 1.95, Go 1.26, a C compiler and GNU make; `make tools` looks for them. Everything else'
	@echo '  is fetched from the registries of Rust and Go and built here. Nothing outside target/ is written.'

tools: ## Looks for the tools this repository needs and says how to get them
	@tools/check

controlplane: tools ## Builds kube-apiserver, etcd, kubectl and both Helms into target/controlplane (once, 10 min)
	@e2e/controlplane/build.sh

demo: controlplane ## Three clusters, two Helm releases, four kinds of trouble; KEEP=1 leaves it all running
	@tools/build --package xtask --package holdfast
	@target/debug/xtask demo $(if $(KEEP),--keep)

test: controlplane ## Format, lints, generated files, unit, property, doc and end-to-end tests
	@tools/test

corpus: controlplane ## Installs every chart of e2e/charts with both Helms and looks for false and missed drift; CHARTS=DIR takes others
	@tools/build --package xtask --package holdfast
	@target/debug/xtask corpus $(or $(CHARTS),e2e/charts) --program target/debug/holdfast

mutate: controlplane ## Changes every field of every kind on real clusters and looks whether it is put back (10 min)
	@tools/build --release --package holdfast
	@cargo xtask mutate

bench: controlplane ## Measures latency, memory and calls, beside the targets
	@tools/build --release --package holdfast
	@cargo xtask bench

soak: controlplane ## Lets everything happen to a hub for MINUTES (3) and looks for what grows
	@tools/build --release --package holdfast
	@cargo xtask soak $(if $(MINUTES),--minutes $(MINUTES))

gen: ## Writes the files that follow from the code
	@cargo xtask gen

fmt: ## Formats the code
	@cargo fmt --all

lint: ## Format check and lints
	@cargo fmt --all --check
	@cargo clippy --workspace --all-targets -- -D warnings

clean: ## Removes everything that was built, the control plane too
	@rm -rf target
