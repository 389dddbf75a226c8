# Every target does its own set-up: a virtual environment in .venv, from the hashed lock.
PYTHON ?= python3
VENV ?= .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready
JOBS ?= 2
# Not from the environment, where BROWSER is the one that people look at pages with.
BROWSER := /usr/bin/chromium
# Tests start many processes: without stored bytecode each would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo quick test check browser docs bench lock format clean

help: ## this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

demo: $(READY) ## three hospitals compute one PCA; the page compares it with the pooled one
	@$(RUN) examples/three_hospitals.py

quick: $(READY) ## the inner loop, in a minute: format, lint, types, and the fast tests of every area
	$(RUN) -m ruff format --check .
	$(RUN) -m ruff check .
	$(RUN) -m mypy
	$(RUN) -m pytest -q -n $(JOBS) -m "not slow and not browser"

test: check $(if $(BROWSER),browser) ## format, lint, types, layers, then every test, doctest and the coverage rule
	EIGENFED_BROWSER=$(BROWSER) $(RUN) -m pytest -n $(JOBS) --cov --cov-report= $(if $(BROWSER),,-m "not browser")
	$(RUN) -m coverage report --include='*/eigenfed/linalg/*,*/eigenfed/arrays.py' --fail-under=100
	$(RUN) -m coverage report --fail-under=95

check: $(READY) ## format, lint, types, layers
	$(RUN) -m ruff format --check .
	$(RUN) -m ruff check .
	$(RUN) -m mypy
	$(VENV)/bin/lint-imports --no-cache

browser: # Chromium, in which the report is tested
	@[ -x "$(BROWSER)" ] || \
	  { [ "$$(id -u) $(BROWSER)" = "0 /usr/bin/chromium" ] && apt-get update -qq && apt-get install -y -qq chromium; } || \
	  { echo "The report is tested in Chromium, and $(BROWSER) is not there: install Debian's chromium, name" \
	    "another one with make test BROWSER=/path/to/it, or leave these tests out with make test BROWSER=" >&2; exit 1; }

docs: $(READY) ## the documentation site, in build/docs
	$(VENV)/bin/zensical build --strict

bench: $(READY) ## speed and memory against peers, as ratios measured in one run
	$(RUN) -m bench

format: $(READY) ## let ruff rewrite the layout and the simple lints
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

lock: $(READY) ## resolve the lock anew, for all supported versions of Python
	$(RUN) -m pip install --quiet uv
	$(RUN) -m uv pip compile --universal --python-version 3.11 --upgrade --quiet \
	  --no-header --no-annotate --no-emit-index-url --no-strip-extras --generate-hashes \
	  pyproject.toml --all-extras --group dev -o requirements/dev.txt

clean: ## remove everything that the other targets made
	rm -rf $(VENV) build dist .cache .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "eigenfed needs Python 3.11 or newer: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
	  { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq python3-venv; } || \
	  { echo "Python has no venv module: install Debian's python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@
