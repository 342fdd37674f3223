# Each target sets up its own .venv when needed and is quick when it is there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO ?= demo
unexport PYTHONDONTWRITEBYTECODE  # a process would compile all that it imports: 3 CPU seconds for torch

.PHONY: demo test proofs suite mutants pythons fuzz audit lint format docs dist bench lock clean

NEEDS = pyproject.toml uv.lock $(wildcard eval/engine/*.[ch])
define INSTALL
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing driftline into $(VENV) (PyTorch and friends: a few minutes the first time)"
	@rm -f eval/engine/_kernel.*  # of an earlier build or another Python: it would be loaded instead
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@UV_PYTHON_DOWNLOADS=never $(BIN)/python -m uv sync --quiet --frozen --inexact --reinstall-package driftline
endef

$(VENV)/.demo: INSTALL += --no-dev
$(VENV)/.demo: $(NEEDS)
	$(INSTALL)
	@touch $@

$(VENV)/.dev: INSTALL += --all-extras
$(VENV)/.dev: $(NEEDS)
	$(INSTALL)
	@touch $(VENV)/.demo $@

demo: $(VENV)/.demo  ## the small journey on the built-in photo world; ends by printing the report's path
	@$(BIN)/python -m driftline demo --out $(DEMO)

# Threads of several workers on two cores would spin, waiting for one another. Three workers: tests that wait for a
# server, a limit of time or a process leave a core to the third.
test proofs suite: export OMP_NUM_THREADS = 1
test proofs suite: export OPENBLAS_NUM_THREADS = 1
test: WHICH := not proof
proofs: WHICH := proof
suite: WHICH :=
# ROOM: a folder or a file under tests/. A file is not worth the start of three workers.
PLACE = $(if $(ROOM),$(or $(wildcard tests/$(ROOM)),$(error there is no tests/$(ROOM))))
WORKERS = $(if $(filter %.py,$(ROOM)),,-n 3 --dist loadfile --no-loadscope-reorder)
test proofs suite: $(VENV)/.dev  ## tests of every day; longer ones: journeys, browsers, kills, real data, matrices; both. ROOM=eval/scoring: those of one room
	@$(BIN)/python -m pytest $(PLACE) -m "$(WHICH)" $(WORKERS) --durations 12

mutants: export PYTHONPATH = .:tests
mutants: export OMP_NUM_THREADS = 1
mutants: export OPENBLAS_NUM_THREADS = 1
mutants: $(VENV)/.dev  ## wrong lines of the source that the nearest tests must see: WORD="of a name or file" for a few
	@$(BIN)/python -m mutants $(WORD)

pythons: export OMP_NUM_THREADS = 1
pythons: $(VENV)/.dev  ## the wheel in a fresh environment of every Python at hand, by the lock, without network: 20 GB of disk
	@$(BIN)/python tests/support/pythons.py $(or $(WHEELS),dist/wheelhouse)

fuzz: export PYTHONPATH = .:tests
fuzz: $(VENV)/.dev  ## hostile input for every reader (TIMES=10000 each), faults of the disk (POINTS=250 a job and kind), random properties
	@$(BIN)/python -m hostile.fuzz --times $(or $(TIMES),10000)
	@$(BIN)/python -m hostile.faults --points $(or $(POINTS),250)
	@DRIFTLINE_EXAMPLES=fuzz $(BIN)/python -m pytest -n 2 -m hypothesis tests

SBOM = $(BIN)/python -m uv export --quiet --frozen --no-emit-project --format cyclonedx1.5 --output-file dist/sbom.json
audit: $(VENV)/.dev  ## known weaknesses of the locked packages, fails if one cannot be looked up: dist/audit.json (CycloneDX)
	@mkdir -p dist
	@$(SBOM)
	@$(BIN)/python -m uv export --quiet --frozen --all-extras --no-emit-project --output-file dist/locked.txt
	@$(BIN)/python -m pip_audit --strict --disable-pip --require-hashes --requirement dist/locked.txt \
	  --progress-spinner off --format cyclonedx-json --output dist/audit.json

lint: $(VENV)/.dev  ## style, types
	@$(BIN)/python -m ruff check .
	@$(BIN)/python -m ruff format --check .
	@$(BIN)/python -m mypy

format: $(VENV)/.dev  ## put the source in order
	@$(BIN)/python -m ruff check --fix .
	@$(BIN)/python -m ruff format .

docs: $(VENV)/.dev  ## the manual as HTML: docs/_build/html/index.html
	@$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

dist: $(VENV)/.dev  ## wheel, sdist, and what they depend on: dist/sbom.json
	@$(BIN)/python -m build --quiet --outdir dist .
	@$(SBOM)

bench: $(VENV)/.dev  ## all benchmarks at quick sizes (FULL=1: at full size), ratios against targets, benchmarks/results.json
	@$(BIN)/python benchmarks/run.py $(if $(FULL),--full)

lock: $(VENV)/.dev  ## uv.lock: the newest versions that work together, with hashes, for every supported Python
	@$(BIN)/python -m uv lock --upgrade

clean:
	rm -rf $(VENV) demo build dist *.egg-info
