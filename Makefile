.PHONY: demo quick test ci slow mutants check install benchmark clean help
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MODE ?= kraft
# Each process of an Airflow, and each Spark driver, would compile some thousand modules of its own, for two to four seconds.
export PYTHONDONTWRITEBYTECODE :=
PYTEST := $(BIN)/python -m pytest
# Tests that share a cluster, an Airflow or Spark share a process; real ones that fail are run once more, alone.
SPREAD := -n 4 --dist loadgroup --no-loadscope-reorder --retry-real
SOURCES := $(shell find provider operators sensors dags -name '*.py' -o -name '*.lock' -o -name '*.json' 2>/dev/null)
# The link tree of the strict editable install knows only the files that it was made from: it is made anew when the list changes.
LISTING := $(shell printf '%s\n' $(sort $(SOURCES)) | cksum | cut -d' ' -f1)

help:  ## what each target does
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 12

demo: install  ## kill a broker of a real cluster and watch it being healed (MODE=zookeeper, KEEP=1)
	@$(BIN)/python -m kafka_steward.demo --mode $(MODE) $(if $(KEEP),--keep)

quick: install  ## the tests that need no process, no server and no socket: after each edit
	@$(PYTEST) --quick -n 2 --dist worksteal

test: install  ## the tests, on real Kafka (both modes), real Airflow, real Spark, real PostgreSQL
	@$(PYTEST) $(SPREAD) -m "not ci and not slow"

ci: install  ## what CI runs, after `make check`: the tests, and the workflows on both kinds of cluster
	@$(PYTEST) $(SPREAD) --every-case --maxfail 5 -m "not slow"

slow: install  ## what neither of them runs, and a search for new cases of the properties
	@$(PYTEST) --hypothesis-profile searching --retry-real --every-case -m "slow or hypothesis"

mutants: install  ## what no quick test notices when the code is changed (FILES=provider/...)
	@$(BIN)/python -m tests.mutants $(FILES)

check: install  ## ruff, mypy --strict, import-linter
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

benchmark: install  ## the tables in docs/benchmarks.md, measured on this machine
	@$(BIN)/python -m benchmarks

install: $(VENV)/.requirements $(VENV)/.linked-$(LISTING)

$(VENV)/.requirements: requirements.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==0.13.8
	@# Airflow's Spark provider needs pyspark-client, which ships the same package without the jars: the full one goes in last.
	@grep -v '^pyspark==' requirements.txt > $(VENV)/without-pyspark.txt
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --requirements $(VENV)/without-pyspark.txt
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --requirements requirements.txt
	@touch $@

$(VENV)/.linked-%: $(VENV)/.requirements pyproject.toml
	@rm -f $(VENV)/.linked-*
	@flock $(VENV)/install.lock $(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable . --config-setting editable_mode=strict
	@touch $@

clean:  ## remove the virtual environment and build leftovers (the jar cache stays)
	@rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache
