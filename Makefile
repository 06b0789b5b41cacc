# Every target sets up what it needs, once, in .venv. Only Python 3.11 to 3.14 and make must be there.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PACKAGES := $(VENV)/packages
READY  := $(VENV)/ready
LOCK   := requirements.lock
PYTEST := $(BIN)/python -m pytest
# Three at a time on two cores, since a third of the time is spent in waiting; a file's tests stay together, with the
# bench that they share.
SHARED := --numprocesses 3 --dist loadgroup --no-loadscope-reorder
TESTS  ?= tests
ENGINES := flink quix

.PHONY: help setup demo check test test-all tests soak lab room site lint types notebooks lock clean

help:            ## show this list
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /  make \1	/'

setup: $(READY)  ## install everything (also done by every other target)

# Every wheel must have the sum that the lock has for it, uv and what builds pyspark too. pip itself is Python's own. The
# lock names all that is needed, so uv asks no package what it needs (--no-deps): it would fetch pyspark for the answer.
$(PACKAGES): $(LOCK) pyproject.toml
	@$(PYTHON) -c 'import sys; (3, 11) <= sys.version_info < (3, 15) or sys.exit("Python 3.11 to 3.14 is needed; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.13 $(MAKECMDGOALS)")'
	$(PYTHON) -m venv $(VENV)
	@sed -n '/^uv==/,/[^\\]$$/p' $(LOCK) > $(VENV)/uv.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $(VENV)/uv.lock
	$(BIN)/uv pip install --python $(BIN)/python --no-deps --require-hashes --build-constraint $(LOCK) --requirement $(LOCK)
	$(BIN)/uv pip install --python $(BIN)/python --no-deps --build-constraint $(LOCK) --editable .
	@$(BIN)/python -c 'import os, sysconfig; open(sysconfig.get_path("purelib") + "/lab.pth", "w").write(os.getcwd() + "\n")'
	@touch $@

$(READY): $(PACKAGES)
	$(BIN)/python -m labs setup
	@touch $@

# It fetches the jars that it needs, and does not wait for what makes later starts faster.
demo: $(PACKAGES) ## run the pipeline, crash it, audit it, plot it
	$(BIN)/python -m labs demo

check: lint types  ## between two edits, one minute: style, types, and the tests that start nothing
	$(PYTEST) -q $(SHARED) -m "not bench and not long and not soak"

test: lint types  ## before a change is handed in, ten minutes: each promise once, on a real Kafka and Spark; lessons 00, 01 and 05 to 07
	$(PYTEST) $(SHARED) -m "not long and not soak" --durations 25

test-all: test  ## most of an hour: also each long test with one of its parameters, and every lesson and exercise
	$(PYTEST) $(SHARED) -m "long and not soak" --durations 60

tests: $(READY)  ## all tests, or some of them: make tests TESTS=tests/sink
	$(PYTEST) $(SHARED) --durations 25 $(TESTS)

soak: $(READY)   ## for a night: every test with all its parameters, chaos under ten seeds, crash tests a hundred times
	$(BIN)/python -m labs soak

lab: $(READY)    ## open your desk in JupyterLab: the lessons, to be worked on, in the folder my-lab
	@[ "$$(id -u)" != 0 ] || [ "$(AS_ROOT)" ] || { echo "JupyterLab does not start as root. Work as another user; in a container of your own: make lab AS_ROOT=--allow-root" >&2; exit 1; }
	$(BIN)/python -m labs desk
	$(BIN)/jupyter lab $(AS_ROOT) --ip=127.0.0.1 --ServerApp.root_dir=. --LabApp.default_url=/lab/tree/my-lab/00_start_here.ipynb

room: $(READY)   ## open the operations room: the stream live, to be struck by hand
	$(BIN)/python -m labs room

site: $(READY)   ## build the course as static pages, in out/site
	$(BIN)/python -m labs site

lint: $(READY)   ## check style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)  ## check types
	$(BIN)/python -m mypy

notebooks: $(READY)  ## execute the lessons in place, cleanly
	$(BIN)/python -m labs notebooks

lock: $(READY)   ## after an edit of requirements.txt: find out what it needs in turn, and write all sums down
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	  --custom-compile-command "make lock" --output-file $(LOCK) requirements.txt
	for engine in $(ENGINES); do \
	  $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	    --custom-compile-command "make lock" --output-file labs/engines/locks/$$engine.lock labs/engines/locks/$$engine.txt; \
	done

clean:           ## delete what the targets made
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache out
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
