# Every target sets up what it needs in .venv. PYTHON chooses the interpreter (3.11 or later).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
ARGS ?=
PROFILE ?= profiles/single-vllm.yaml
SOURCES := switchyard_py tests

.PHONY: help demo run test test-faults test-vllm test-clients bench soak docs check format clean

help:  ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY)  ## play a conversation on the embedded engine; needs no GPU
	$(BIN)/switchyard demo

run: $(READY)  ## serve PROFILE (default: one vLLM on port 8000)
	$(BIN)/switchyard --routing-profiles $(PROFILE) -- serve

test: $(READY)  ## run the tests
	$(BIN)/pytest

test-faults: $(READY)  ## faults, load, hostile input and kills at full size (up to 20 minutes)
	SWITCHYARD_FULL_FAULTS=1 $(BIN)/pytest tests/faults tests/proxy/test_wire.py

test-vllm: $(READY)  ## run the main job against a real vLLM (CPU; installed on first use)
	tests/vllm/lane.sh $(BIN)/pytest

test-clients: $(READY)  ## let real agents work through the proxy (installed on first use)
	tests/clients/lane.sh $(BIN)/pytest

bench: $(READY)  ## measure what the proxy costs (ARGS=--quick for a look)
	PYTHONPATH=tests $(BIN)/python -m benchmarks $(ARGS)

soak: $(READY)  ## half an hour of work, and what grows (ARGS='--minutes 3' for a look)
	PYTHONPATH=tests $(BIN)/python -m benchmarks.soak $(ARGS)

docs: $(READY)  ## write the page that is made from the rows of the fault tests
	PYTHONPATH=tests $(BIN)/python -m fault_matrix > docs/what-happens-when.md

check: $(READY)  ## format, lint and type checks
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy

format: $(READY)  ## format and fix what can be fixed
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "switchyard_py needs Python 3.11 or later; name one with: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@
