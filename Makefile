# Turnyard's commands. `make` alone lists them.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests run on every core; WORKERS=0 runs them in one process (for a debugger).
WORKERS ?= auto
ARGS ?=
SOURCES := $(wildcard turnyard dispatcher workers platforms tests benches examples hatch_build.py)

.PHONY: help setup demo test thorough topologies check format bench chaos mutations sweep spec wheel lock clean

help: ## list the commands
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 16

setup: $(VENV)/.ready ## make .venv from the lock file

# Only a change of the lock or of pyproject.toml installs again.
$(VENV)/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Turnyard needs Python 3.11 or newer; set PYTHON=python3.12, say")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup ## a whole yard on this machine: a turn, a lifted tool, a notice, a killed worker
	@$(BIN)/python examples/demo.py $(ARGS)

test: setup ## every test, in parallel (ARGS='-k lease' narrows, WORKERS=0 for one process)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup $(ARGS)

thorough: setup ## the properties of engine and records with 2,000 examples each, ten times as many as in `make test` (ARGS='-k shaper' narrows)
	HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest -q -n $(WORKERS) --timeout 900 $(shell grep -rlE --include='test_*.py' '^from hypothesis' tests/unit) $(ARGS)

topologies: setup ## the protocol and role suites once more, on a Redis Cluster of three masters
	TURNYARD_TEST_TOPOLOGY=cluster $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup tests/contract $(wildcard tests/protocol/test_script_*.py \
	  tests/protocol/test_traps_o*.py tests/protocol/test_review*.py) tests/integration/dispatcher tests/integration/workers tests/integration/lifted $(ARGS)

check: setup ## format, lint, import directions, types
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/lint-imports
	$(BIN)/basedpyright --pythonpath $(BIN)/python

format: setup ## rewrite the sources in the one format, and fix what can be fixed
	$(BIN)/ruff check --fix-only $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

bench: setup ## the numbers of docs/performance.md (JSON=out.json writes them, ONLY=name runs one)
	@$(BIN)/python -m benches $(if $(JSON),--json $(JSON)) $(if $(ONLY),--only $(ONLY)) $(ARGS)

chaos: setup ## real processes under seeded faults, judged by the oracles (SECONDS=120, SEED=7 for one; SEEDS=5 seeds else)
	@$(BIN)/python -m tests.faults.chaos --seconds $(or $(SECONDS),60) --seeds $(or $(SEEDS),5) $(if $(SEED),--seed $(SEED)) $(ARGS)

mutations: setup ## take each rule out of a copy of the sources and of the model, and name the test that notices (ARGS=word narrows)
	@$(BIN)/python -m tests.mutations $(ARGS)

sweep: setup ## kill every process at each of its commands, and check what is left (ONLY=point runs one; tests/faults/README.md)
	@$(BIN)/python -m tests.faults.sweep $(if $(ONLY),--only '$(ONLY)') $(ARGS)

spec: setup ## which rows of docs/acceptance.md the tests prove (JSON=out.json writes them)
	@SPEC=1 JSON=$(JSON) $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup $(ARGS)

wheel: setup ## build dist/turnyard-*.whl
	$(BIN)/python -m build --wheel --no-isolation

# Names, versions and hashes for every platform; no address, so any index can serve it. The second file is what the image installs.
COMPILE := $(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --quiet
lock: setup ## resolve the lock files again from pyproject.toml
	$(BIN)/python -m pip install --quiet uv
	$(COMPILE) --upgrade --extra dev --group tools --output-file requirements.lock
	$(COMPILE) --extra server --extra s3 --constraint requirements.lock --output-file requirements-server.lock
	@! grep -nE '://|file:|--(index|extra|find|trusted)' requirements.lock requirements-server.lock

clean: ## remove what the commands made
	rm -rf $(VENV) dist build .pytest_cache .ruff_cache .hypothesis .import_linter_cache .peers .coverage*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
