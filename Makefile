# make demo    see it work          make test       the tests, two at once
# make lint    ruff and mypy        make test-slow  all, those that take minutes too, with other examples
# make test-kubernetes              the tests that need a Kubernetes API server, which is built once (Debian 12, root)
# make test-ray                     those that need a Ray cluster, in an environment of their own
# make claims                       measure the numbers that README and docs state, and write them there (hours)
# make claims-fast                  those that do not depend on the machine: fail where one got worse (minutes)
# Uses the active virtual environment; without one it makes .venv here.

ifneq ($(VIRTUAL_ENV),)
ENV := $(VIRTUAL_ENV)
else
ENV := .venv
endif
BIN := $(ENV)/bin
PYTHON ?= python3
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test test-slow test-ray test-kubernetes claims claims-fast claims-tables lint clean
.DEFAULT_GOAL := demo

demo: $(ENV)/.optsched-all
	$(BIN)/optsched demo

test: $(ENV)/.optsched-dev
	$(BIN)/python -m pytest -n 2

test-slow: $(ENV)/.optsched-dev
	$(BIN)/python -m pytest -n 2 --dist worksteal -m '' --hypothesis-profile=varied

test-ray: .venv-ray/.optsched
	.venv-ray/bin/python tests/executors/ray/alone.py .venv-ray/bin/python -m pytest -m '' $(or $(TESTS),tests/executors/ray)

test-kubernetes: $(ENV)/.optsched-dev
	tests/live/build_kubernetes.sh
	$(BIN)/python -c 'import sys; from tests.live.kubernetes_cluster import missing; sys.exit(missing())'
	$(BIN)/python -m pytest -m '' tests/executors/kubernetes tests/kueue tests/test_deploy.py

claims: $(ENV)/.optsched-dev
	$(BIN)/python -m benchmarks.claims $(CLAIMS)

claims-fast: $(ENV)/.optsched-dev
	$(BIN)/python -m benchmarks.claims --fast --check --again

claims-tables: $(ENV)/.optsched-dev
	$(BIN)/python -m benchmarks.claims --tables

lint: $(ENV)/.optsched-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf .venv .venv-ray demo-output build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'optsched needs Python 3.11 or newer; name one: make PYTHON=python3.12' >&2; exit 1; }
	$(PYTHON) -m venv $(ENV)

# One stamp for each set of extras; a change of the dependencies installs them again.
$(ENV)/.optsched-all: pyproject.toml | $(BIN)/python
	$(PIP) -e '.[all]'
	@touch $@

$(ENV)/.optsched-dev: pyproject.toml | $(BIN)/python
	$(PIP) -e '.[all,dev]'
	@touch $@ $(ENV)/.optsched-all

.venv-ray/.optsched: pyproject.toml
	$(PYTHON) -m venv .venv-ray
	.venv-ray/bin/python -m pip install --quiet --disable-pip-version-check -e '.[ray,dev]'
	@touch $@
