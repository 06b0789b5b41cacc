# Every target sets up what it needs, once, in .venv. Only Python 3.11+ and make must be there.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/ready

.PHONY: help setup demo test lab lint notebooks clean

help:            ## show this list
	@grep -hE '^[a-z]+: .*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## /  make \1	/'

setup: $(READY)  ## install everything (also done by every other target)

$(READY): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 $(MAKECMDGOALS)")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==0.13.8
	$(BIN)/uv pip install --python $(BIN)/python --requirement requirements.txt
	$(BIN)/python -m labs setup
	@touch $@

demo: $(READY)   ## run the pipeline, crash it, audit it, plot it
	$(BIN)/python -m labs demo

test: $(READY)   ## lint, unit and end-to-end tests, and every notebook
	@$(MAKE) --no-print-directory lint
	$(BIN)/python -m pytest --numprocesses 2 --dist loadgroup --no-loadscope-reorder --durations 25

lab: $(READY)    ## open the lessons in JupyterLab
	$(BIN)/jupyter lab --ip=127.0.0.1 notebooks/00_start_here.ipynb

lint: $(READY)   ## check style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

notebooks: $(READY)  ## execute all notebooks in place, cleanly
	$(BIN)/python -m labs notebooks

clean:           ## delete what the targets made
	rm -rf $(VENV) .pytest_cache .ruff_cache out
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
