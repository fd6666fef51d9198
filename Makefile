# Two commands do everything: `make run` and `make test`. The rest are parts of them.
.DEFAULT_GOAL := help
.PHONY: help run test tools lint docs unit infra e2e stack build deploy local-aws bench schemas golden clean

CARGO ?= cargo
# Tools from PyPI, in a folder of the repository's own: cargo-lambda, zig, SAM, the emulator.
TOOLS := .venv/bin
# What the functions are built with: zig links for the glibc of Amazon Linux 2023; `cargo` for this machine.
LAMBDA_COMPILER ?= cargo-zigbuild
LAMBDA_BUILD = PATH="$(CURDIR)/$(TOOLS):$$PATH" $(CARGO) lambda build --locked -p tidemark-functions --lambda-dir "$(CURDIR)/target/lambda"
# What Lambda runs them on: x86_64 or arm64, the template's parameter `Architecture`.
ARCH ?= x86_64
# The `tidemark` that tests run.
TESTED := $(CURDIR)/target/lambda/tidemark/bootstrap

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

e2e: tested ## real processes: kill -9, copies, bad input, the page, licences
	$(CARGO) test -p tidemark-tests --locked --quiet

infra: tools ## the template: its own lints, and what they do not see
	SAM_CLI_TELEMETRY=0 __SAM_CLI_APP_DIR=.venv/sam AWS_DEFAULT_REGION=us-east-1 $(TOOLS)/sam validate --lint --template infra/template.yaml
	$(TOOLS)/cfn-lint infra/template.yaml
	$(TOOLS)/python -m pytest -q tests/infra

stack: tested ## the shipped template on an emulator with IAM on, with the compiled functions
ifeq ($(shell uname),Linux)
	TIDEMARK="$(TESTED)" $(TOOLS)/python -m pytest -q tests/stack
else
	@echo "The tests of the deployed stack run Linux functions on this machine: they need Linux, and were left out."
endif

build: tools ## all functions for Lambda, and their bill of materials
	$(LAMBDA_BUILD) --release --compiler $(LAMBDA_COMPILER) $(if $(filter arm64,$(ARCH)),--arm64,--x86-64)
	$(TOOLS)/python infra/sbom.py > target/lambda/sbom.cdx.json

deploy: build ## deploy to AWS; asks for a stack name and a region the first time
	cd infra && ../$(TOOLS)/sam deploy --template-file template.yaml $$(grep -q '^stack_name' samconfig.toml || echo --guided)

local-aws: tested ## the stack on an emulator on this machine, with something to look at
	TIDEMARK="$(TESTED)" $(TOOLS)/python tests/stack/local.py

# The program and the functions in one go, for this machine: what they have in common is compiled once.
.PHONY: tested
tested: tools
ifeq ($(shell uname),Linux)
	$(LAMBDA_BUILD) -p tidemark --profile tested --disable-optimizations --compiler cargo
else
	$(CARGO) build --locked --profile tested --bin tidemark
	mkdir -p target/lambda/tidemark && cp "$(or $(CARGO_TARGET_DIR),target)/tested/tidemark" $(TESTED)
endif

bench: tools ## measure speed and memory beside their peers
	$(LAMBDA_BUILD) --release --compiler cargo --features minimal
	$(CARGO) build --release --locked --bin tidemark
	$(CARGO) run -p tidemark-tests --release --locked --bin bench

schemas: ## write schemas/ anew from the types
	$(CARGO) run -q -p tidemark-domain --example schemas

golden: ## write tests/golden anew; review the difference like code
	$(CARGO) run -q -p tidemark-domain --example golden

clean: ## remove what was built
	$(CARGO) clean
