# Two commands do everything: `make run` and `make test`. The rest are parts of them.
.DEFAULT_GOAL := help
.PHONY: help run test lint docs unit e2e bench schemas golden clean

CARGO ?= cargo

help: ## list what can be made
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk 'BEGIN {FS = ":.*## "} {printf "  make %-9s %s\n", $$1, $$2}'

run: ## start Tidemark here, with a sample upstream that changes while you watch
	$(CARGO) run --release --locked --bin tidemark -- serve --example

test: lint docs unit e2e ## everything that CI runs

lint: ## formatting and lints; warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

docs: ## the API documentation; warnings are errors
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked --quiet

unit: ## laws, model comparison, fault injection, simulation, documents, HTTP
	$(CARGO) test --workspace --exclude tidemark-tests --locked --quiet

e2e: ## real processes: kill -9, copies, bad input, the page, licences
	$(CARGO) build --release --locked --bin tidemark
	$(CARGO) test -p tidemark-tests --locked --quiet

bench: ## measure speed and memory beside their peers
	$(CARGO) build --release --locked --bin tidemark
	$(CARGO) run -p tidemark-tests --release --locked --bin bench

schemas: ## write schemas/ anew from the types
	$(CARGO) run -q -p tidemark-domain --example schemas

golden: ## write tests/golden anew; review the difference like code
	$(CARGO) run -q -p tidemark-domain --example golden

clean: ## remove what was built
	$(CARGO) clean
