# make demo    see it work          make test       the tests
# make lint    ruff and mypy        make test-slow  the tests that take minutes
# Uses the active virtual environment; without one it makes .venv here.

ifneq ($(VIRTUAL_ENV),)
ENV := $(VIRTUAL_ENV)
else
ENV := .venv
endif
BIN := $(ENV)/bin
PYTHON ?= python3
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test test-slow lint clean
.DEFAULT_GOAL := demo

demo: $(ENV)/.optsched-all
	$(BIN)/optsched demo

test: $(ENV)/.optsched-dev
	$(BIN)/python -m pytest -n 2

test-slow: $(ENV)/.optsched-dev
	$(BIN)/python -m pytest -m slow

lint: $(ENV)/.optsched-dev
	$(BIN)/ruff check .
	$(BIN)/mypy

clean:
	rm -rf .venv demo-output build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
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
