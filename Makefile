# `make` alone lists what there is. Every target sets up what it needs.
PY := .venv/bin/python
BASE := .venv/.base
DEV := .venv/.dev

.DEFAULT_GOAL := help
.PHONY: help demo test lint format bench doctor clean

help:
	@echo "make demo     score right, wrong, crashing, looping and hostile programs; nothing to prepare"
	@echo "make test     all tests; also the isolation tests as an ordinary user and in a locked-down container"
	@echo "make lint     ruff and mypy"
	@echo "make format   let ruff rewrite the sources"
	@echo "make bench    measured speed on this machine, side by side"
	@echo "make doctor   which protections hold on this host, each tried by its attack"
	@echo "make clean    remove .venv and caches"
	@echo
	@echo "PYTHON=/path/to/python3 picks the interpreter. As root, make test installs missing"
	@echo "compilers and runtimes with apt-get; NO_APT=1 leaves the system alone."

# The stamps are older than these files when they changed: then install again.
$(BASE): pyproject.toml tools/setup.sh
	@sh tools/setup.sh base

$(DEV): pyproject.toml tools/setup.sh
	@sh tools/setup.sh dev

demo: $(BASE)
	@.venv/bin/proctor demo

test: $(DEV)
	@# On a shared machine a test can lose a race with other load: one that fails twice is red.
	$(PY) -m pytest || $(PY) -m pytest --last-failed
	$(PY) tests/environments.py

lint: $(DEV)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: $(DEV)
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

bench: $(BASE)
	@$(PY) -m bench

doctor: $(BASE)
	@.venv/bin/proctor doctor

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
