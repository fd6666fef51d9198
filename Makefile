# Two commands do everything: `make run` and `make test`. The rest are parts of them.
.DEFAULT_GOAL := help
.PHONY: help run test tools lint docs unit infra e2e stack build deploy local-aws bench schemas golden clean

CARGO ?= cargo
# Tools from PyPI, in a folder of the repository's own: cargo-lambda, zig, SAM, the emulator.
TOOLS := .venv/bin
# What the functions are built with: zig links for the glibc of Amazon Linux 2023; `cargo` for this machine.
LAMBDA_COMPILER ?= cargo-zigbuild
LAMBDA_BUILD = PATH="$(CURDIR)/$(TOOLS):$$PATH" $(CARGO) lambda build --release --locked -p tidemark-functions --lambda-dir "$(CURDIR)/target/lambda"
# Where cargo puts everything else.
TARGET := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)

help: ## list what can be made
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk 'BEGIN {FS = ":.*## "} {printf "  make %-9s %s\n", $$1, $$2}'

run: ## start Tidemark here, with a sample upstream that changes while you watch
	$(CARGO) run --release --locked --bin tidemark -- serve --example

test: tools lint docs unit infra e2e stack ## everything that CI runs

tools: .venv/installed ## the tools from PyPI, at pinned versions, into .venv

.venv/installed: tests/requirements.txt tests/constraints.txt
	python3 -m venv .venv
	$(TOOLS)/pip install --quiet --disable-pip-version-check -r tests/requirements.txt -c tests/constraints.txt
	# SAM asks the world for its newest version once a week; it was just told.
	mkdir -p .venv/sam && echo '{"lastVersionCheck": 4102444800}' > .venv/sam/metadata.json
	touch $@

lint: ## formatting and lints; warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

docs: ## the API documentation; warnings are errors
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked --quiet

unit: tools ## laws, model comparison, fault injection, simulation, documents, HTTP
	$(CARGO) test --workspace --exclude tidemark-tests --locked --quiet

e2e: ## real processes: kill -9, copies, bad input, the page, licences
	$(CARGO) build --release --locked --bin tidemark
	$(CARGO) test -p tidemark-tests --locked --quiet

infra: tools ## the template: its own lints, and what they do not see
	SAM_CLI_TELEMETRY=0 __SAM_CLI_APP_DIR=.venv/sam AWS_DEFAULT_REGION=us-east-1 $(TOOLS)/sam validate --lint --template infra/template.yaml
	$(TOOLS)/cfn-lint infra/template.yaml
	$(TOOLS)/python -m pytest -q tests/infra

stack: stack-parts ## the shipped template on an emulator with IAM on, with the compiled functions
	TIDEMARK="$(TARGET)/release/tidemark" $(TOOLS)/python -m pytest -q tests/stack

build: tools ## all functions for Lambda, and their bill of materials
	$(LAMBDA_BUILD) --compiler $(LAMBDA_COMPILER)
	$(TOOLS)/python infra/sbom.py > target/lambda/sbom.cdx.json

deploy: build ## deploy to AWS; asks for a stack name and a region the first time
	cd infra && ../$(TOOLS)/sam deploy --template-file template.yaml $$(grep -q '^stack_name' samconfig.toml || echo --guided)

local-aws: stack-parts ## the stack on an emulator on this machine, with something to look at
	TIDEMARK="$(TARGET)/release/tidemark" $(TOOLS)/python tests/stack/local.py

.PHONY: stack-parts
stack-parts: tools
	$(LAMBDA_BUILD) --compiler cargo
	$(CARGO) build --release --locked --bin tidemark

bench: tools ## measure speed and memory beside their peers
	$(LAMBDA_BUILD) --compiler cargo --features minimal
	$(CARGO) build --release --locked --bin tidemark
	$(CARGO) run -p tidemark-tests --release --locked --bin bench

schemas: ## write schemas/ anew from the types
	$(CARGO) run -q -p tidemark-domain --example schemas

golden: ## write tests/golden anew; review the difference like code
	$(CARGO) run -q -p tidemark-domain --example golden

clean: ## remove what was built
	$(CARGO) clean
