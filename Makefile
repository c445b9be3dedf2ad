# The commands of development. `make help` lists them.

PYTHON ?= python3
VENV ?= .venv
# Where pip looks for torch beside its own index, such as PyTorch's list of CPU-only builds.
TORCH_INDEX ?=
# More arguments for pytest: make test ARGS="-k diff"
ARGS ?=
# Two workers, one file of tests each: those of a file share the ranks that they have started.
WORKERS ?= 2

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
PYTEST := $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile
HAS_TORCH := import importlib.metadata as m; \
	assert tuple(map(int, m.version("torch").split(".")[:2])) >= (2, 4)

.PHONY: help demo test check format lint mypy bench clean
.DEFAULT_GOAL := help

help:  ## list these commands
	@sed -n 's/^\([a-z]*\):.*## /make \1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 14
	@echo "Settings: PYTHON=$(PYTHON) VENV=$(VENV) TORCH_INDEX=(a URL that pip also searches for torch)"

demo: $(VENV)/.ready-demo  ## record a ring on 4 processes, simulate it, open the dashboard
	@$(BIN)/chunkscope demo

test: $(VENV)/.ready-test  ## pass all tests, those in the browser included
	@sh .ci/system-packages
	@$(PYTEST) $(ARGS)

check: $(VENV)/.ready-test lint mypy  ## format, lint, types, tests
	@$(PYTEST) $(ARGS)

lint: $(VENV)/.ready-test  ## say what `make format` or a person should mend
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .

format: $(VENV)/.ready-test  ## lay out the code and mend what is mended safely
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format .

# mypy names modules by their folders; the link gives this folder its package's name.
mypy: $(VENV)/.ready-test  ## check the types, strictly
	@mkdir -p $(VENV)/src && ln -sfn "$(CURDIR)" $(VENV)/src/chunkscope
	@cd $(VENV)/src && "$(abspath $(BIN))/python" -m mypy --config-file chunkscope/pyproject.toml \
		--cache-dir "$(CURDIR)/.mypy_cache" -p chunkscope

# accuracy.py needs root and the machine for itself, and writes a document: it is run by hand.
BENCHMARKS := $(filter-out %/accuracy.py,$(wildcard tests/benchmarks/[a-z]*.py))
bench: $(VENV)/.ready-test  ## measure what the documents state
	@set -e; for script in $(BENCHMARKS); do \
		echo "== $$script"; $(BIN)/python $$script; done

clean:  ## remove the virtual environment and what the tools left behind
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The environment. A stamp file says that it is complete, so that the second time takes seconds.
$(VENV)/.ready-demo: EXTRAS := all
$(VENV)/.ready-test: EXTRAS := test
$(VENV)/.ready-demo $(VENV)/.ready-test: pyproject.toml $(VENV)/.ready-torch
	@echo "Installing chunkscope[$(EXTRAS)] into $(VENV) ..."
	@$(PIP) install -c $(VENV)/constraints.txt setuptools
	@$(PIP) install -c $(VENV)/constraints.txt --no-build-isolation -e '.[$(EXTRAS)]'
	@touch $@

# A torch that is there already is used, whatever its version from 2.4 on.
$(VENV)/.ready-torch: constraints.txt | $(VENV)/.made
	@grep -v '^torch==' constraints.txt > $(VENV)/constraints.txt
	@if $(BIN)/python -c '$(HAS_TORCH)' 2>/dev/null; then echo "Using the torch that is there."; \
	else echo "Installing torch into $(VENV) (the first time this takes a few minutes) ..."; \
		$(PIP) install -c constraints.txt $(addprefix --extra-index-url ,$(TORCH_INDEX)) torch; fi
	@touch $@

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "chunkscope needs Python 3.11 or newer: make $(MAKECMDGOALS) PYTHON=python3.11"; exit 1; }
	@echo "Making a virtual environment in $(VENV) ..."
	@if $(PYTHON) -c '$(HAS_TORCH)' 2>/dev/null; then system=--system-site-packages; fi; \
		$(PYTHON) -m venv $$system $(VENV) || { \
		echo "On Debian: apt-get install python3-venv"; exit 1; }
	@touch $@
