# Each target sets up what it needs in .venv by itself, with uv when it is there, else with venv and pip.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
COVERING := tests/unit/compression tests/unit/search/test_deprecation.py
UV := $(shell command -v uv 2>/dev/null)

ifdef UV
create  = $(UV) venv --quiet --allow-existing --python $(PYTHON) $(VENV)
install = $(UV) pip install --quiet --python $(BIN)/python --constraint constraints.txt
else
create  = $(PYTHON) -m venv $(VENV)
install = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
endif

# Without compiled files, each worker of pytest compiles the tests and the packages again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo check test coverage lint systems format conformance inspector clients bench site wheel-check store-files installs clean

help:  ## Show what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

$(VENV)/.run: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "mcp-optimizer needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ..."; exit 1; }
	@echo "Installing into $(VENV); the first time takes a minute or two ..."
	$(create)
	$(install) --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	$(install) --editable '.[dev]'
	@touch $@

demo: $(VENV)/.run  ## Start three demo servers and see what is found, what it costs and what it saves
	$(BIN)/mcp-optimizer demo

check: $(VENV)/.dev  ## Check style, contracts, and the unit tests that are quick and start no process
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(TESTS) tests/contract tests/unit -- -m "not slow and not process" --hypothesis-profile quick

# As many processes as cores and one more, each of which takes the next file.
TESTS := $(BIN)/python -m tests.side_by_side

test: $(VENV)/.dev  ## Run all tests, those of the compression with their coverage
	$(TESTS) tests $(COVERING:%=--ignore %)
	$(MAKE) coverage

coverage: $(VENV)/.dev  ## Fail unless the tests reach 95 % of the branches of everything that changes a schema
	$(BIN)/python -m pytest -n auto --dist loadfile $(COVERING) --cov=mcp_optimizer.compression --cov-branch --cov-report=term-missing --cov-fail-under=95

lint: $(VENV)/.dev  ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

systems: $(VENV)/.dev  ## Check that nothing is used which macOS or Windows lack
	$(BIN)/python scripts/other_systems.py

format: $(VENV)/.dev  ## Put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

conformance: $(VENV)/.dev  ## Run the official conformance suite directly and through the gateway (from npm)
	$(BIN)/python -m tests.conformance
	$(BIN)/python -m tests.conformance.auth

inspector: $(VENV)/.dev  ## List, call and read through the gateway with the official inspector (from npm)
	$(BIN)/python -m tests.conformance.inspector

clients: $(VENV)/.dev  ## Drive real clients (from npm and PyPI) against a scripted model, and check what it read
	$(BIN)/python -m tests.clients

bench: $(VENV)/.dev  ## Measure: counting, metrics, starts, calls through the gateway
	$(BIN)/python -m benchmarks.gateway.basics
	$(BIN)/python -m benchmarks.containment.bad_servers

$(VENV)/.site: $(VENV)/.run
	$(install) --editable '.[site]'
	@touch $@

site: $(VENV)/.site  ## Build the documentation site into build/site, and check each of its links
	$(BIN)/python scripts/make_site.py

wheel-check: $(VENV)/.dev  ## Build the wheel, install it into a fresh environment and try it there
	$(BIN)/python scripts/try_wheel.py

store-files: $(VENV)/.dev  ## Make what stores want of the built wheel in build/stores: the formula and the bundle
	$(BIN)/python scripts/make_stores.py --release dist/*.whl
	$(BIN)/python -m tests.clients.bundle --keep build/stores/mcp-optimizer.mcpb

installs: $(VENV)/.dev  ## Install the built wheel with pip, uvx, pipx and beside the other package, and measure each
	$(BIN)/python scripts/try_installs.py

clean:  ## Remove everything that was made here
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .node .clients
