# `make demo` and `make test` work on a fresh machine with Python >= 3.11 and nothing else.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
READY_DOCS := $(VENV)/.ready-docs

.PHONY: help demo test test-slow lint docs docs-links bench proofs release clean
help:
	@echo "make demo   train a Rational Transductor and a Transformer on mod-5 counting, compare them"
	@echo "make test   run the tests            make lint   ruff, mypy --strict, import rules"
	@echo "make bench  time the scan            make test-slow   the studies marked slow"
	@echo "make docs   build the documentation site in build/site, links checked, tutorials run"
	@echo "make release   the source distribution and the wheel, tried in empty environments (PYTHONS=...)"
	@echo "make proofs install Rocq and Flocq where they are missing, build the machine-checked proofs"

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Transductor needs Python >= 3.11; set PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(READY)
	$(BIN)/transductor demo

# Two workers with one thread each: more threads would only compete for two cores. Each worker takes one half of the
# files, so that what a file's tests share is made once, and helps the other when it is done. Bytecode is written even
# where the environment forbids it: many tests start processes, which would compile every module again.
test: $(READY)
	OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not slow"

test-slow: $(READY)
	$(BIN)/python -m pytest -q -m slow

lint: $(READY)
	$(BIN)/ruff check src tests benchmarks examples docs/*.py
	$(BIN)/ruff format --check src tests benchmarks examples docs/*.py
	$(BIN)/mypy
	$(BIN)/lint-imports

# Needs no network once the packages are there; warnings are errors, and every internal link is followed.
$(READY_DOCS): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --constraint constraints.txt --editable '.[dev,docs]'
	@touch $@

docs: $(READY_DOCS)
	$(BIN)/python docs/make_site.py

# Asks other hosts whether they still answer.
docs-links: $(READY_DOCS)
	$(BIN)/python docs/make_site.py --external

bench: $(READY)
	$(BIN)/transductor bench scan

# Publishes nothing: what it made lies in dist/.
release: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[release]'
	$(BIN)/python tests/check_release.py $(PYTHONS)

# Needs no Python. The build takes half a minute, and fails if a proof is open or rests on more than the reals' axioms.
proofs:
	sh proofs/install.sh
	$(MAKE) --no-print-directory -C proofs

clean:
	$(MAKE) --no-print-directory -C proofs clean
	rm -rf $(VENV) build src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
