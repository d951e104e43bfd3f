# ChatMind's everyday commands. `make` alone lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PEERS := $(VENV)/.installed-peers

# Passed on to the command: `make run ARGS="--data-dir /tmp/x"`, `make test PYTEST_ARGS="-k resume"`.
ARGS ?=
PYTEST_ARGS ?=

# Where `make test-local-model` keeps the model and its server, which are fetched and built once.
LOCAL_MODEL_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/chatmind/local-model

# Every process here is one of several: more BLAS or OpenMP threads each make all of them slower.
export OPENBLAS_NUM_THREADS := 1
export OMP_NUM_THREADS := 1
export OMP_WAIT_POLICY := passive

# A PYTHON given by hand is taken at its word; otherwise any that is new enough will do.
PYTHONS := $(if $(filter file,$(origin PYTHON)),$(PYTHON) python3.13 python3.12 python3.11,$(PYTHON))
SUITS := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup run check lint types proto proto-check lint-proto imports test test-unit test-e2e \
	test-local-model chaos bench format clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z][a-z0-9-]*:.*## / {printf "  %-16s %s\n", $$1, $$2}' Makefile

setup: $(STAMP) ## make the virtual environment and install everything into it
	@:

$(STAMP): pyproject.toml constraints.txt
	@if ! $(BIN)/python -c '$(SUITS)' 2>/dev/null; then \
		for python in $(PYTHONS) ''; do \
			if [ -n "$$python" ] && "$$python" -c '$(SUITS)' 2>/dev/null; then break; fi; \
		done; \
		if [ -z "$$python" ]; then \
			echo "ChatMind needs Python 3.11 or newer with its venv module; tried: $(PYTHONS)." >&2; \
			echo "Name one with 'make setup PYTHON=/path/to/python3'." >&2; \
			exit 1; \
		fi; \
		"$$python" -m venv --clear $(VENV); \
	fi
	@echo "installing ChatMind into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

run: setup ## start everything on this machine; Ctrl-C stops it (ARGS=...)
	@exec $(BIN)/chatmind up $(ARGS)

check: lint types proto-check lint-proto imports test ## everything continuous integration runs

lint: setup ## style of the Python code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## static types, strictly
	$(BIN)/mypy

proto: setup ## generate the stubs in gen/ from protos/
	$(BIN)/python tools/proto.py generate

proto-check: setup ## the stubs in gen/ are what protos/ says
	$(BIN)/python tools/proto.py check

lint-proto: setup ## style of the contract, and its compatibility with the last release
	$(BIN)/python tools/proto.py lint
	$(BIN)/python tools/proto.py breaking

imports: setup ## who may import whom
	$(BIN)/lint-imports

# Each process has a PostgreSQL of its own, and the tests of a file share what they started.
test: setup ## the whole test suite, on up to four cores (PYTEST_ARGS=...)
	$(BIN)/pytest -n auto --maxprocesses 4 --dist loadfile $(PYTEST_ARGS)

test-unit: setup ## the tests that need no running system
	$(BIN)/pytest --ignore=tests/e2e --ignore=tests/chaos $(PYTEST_ARGS)

test-e2e: setup ## the tests of the running system
	$(BIN)/pytest tests/e2e tests/chaos $(PYTEST_ARGS)

test-local-model: setup ## conversations with a real model: 1.1 GB and 10 minutes of compiling, once
	$(BIN)/python tools/local_model.py $(LOCAL_MODEL_DIR)
	CHATMIND_LOCAL_MODEL_DIR=$(LOCAL_MODEL_DIR) $(BIN)/pytest tests/local_model -s $(PYTEST_ARGS)

chaos: setup ## break everything while 1,000 runs go on, and look for what got lost: about 5 minutes
	CHATMIND_CHAOS=long $(BIN)/pytest tests/chaos/test_campaign.py -s $(PYTEST_ARGS)

bench: $(PEERS) ## measurements, beside those of other projects (ARGS=...)
	$(BIN)/python -m bench $(ARGS)

$(PEERS): $(STAMP)
	@echo "installing what is measured beside ChatMind ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	@touch $@

format: setup ## put the Python code into its one form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the virtual environment and every cache; data in .chatmind/ stays
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
