.PHONY: demo quick test ci slow chaos-simulated mutants statements versions check docs install benchmark dist distributions sbom clean help
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
SOURCES := $(shell find provider operators sensors dags -name '*.py' -o -name '*.lock' -o -name '*.json' -o -path '*/ui/static/*' -o -path '*/ui/templates/*' 2>/dev/null)
# The link tree of the strict editable install knows only the files that it was made from: it is made anew when the list changes.
LISTING := $(shell printf '%s\n' $(sort $(SOURCES)) | cksum | cut -d' ' -f1)
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' provider/__init__.py)
RELEASE = airflow_provider_kafka_steward-$(VERSION)
# The commit's time, which is also that of all files of an sdist.
dist distributions sbom: export SOURCE_DATE_EPOCH ?= $(shell test -e .git && git log -1 --format=%ct || stat -c %Y pyproject.toml)

help:  ## what each target does
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 12

demo: install  ## kill a broker of a real cluster and watch it being healed (MODE=zookeeper, KEEP=1)
	@$(BIN)/python -m kafka_steward.demo --mode $(MODE) $(if $(KEEP),--keep)

quick: install  ## the tests that need no process, no server and no socket: after each edit
	@$(PYTEST) --quick -n 2 --dist worksteal

test: install  ## the tests, on real Kafka (both modes), real Airflow, real Spark, real PostgreSQL
	@$(PYTEST) $(SPREAD) -m "not ci and not slow"

ci: install  ## what CI runs, after `make check`: the tests, and every workflow in a real Airflow
	@$(PYTEST) $(SPREAD) --every-case --maxfail 5 -m "not slow"

slow: install  ## what neither of them runs, and a search for new cases of the properties
	@$(PYTEST) --hypothesis-profile searching --retry-real --every-case -m "slow or hypothesis"

chaos-simulated: install  ## seeded faults on the simulated cluster for ten minutes; a failing seed is shrunk (SEED=1, ROUNDS, MINUTES)
	@$(BIN)/python -m tests.chaos --seed $(or $(SEED),1) $(if $(ROUNDS),--rounds $(ROUNDS)) --minutes $(or $(MINUTES),10)

mutants: install  ## what no quick test notices when the code is changed (FILES=provider/...)
	@$(BIN)/python -m tests.mutants $(FILES)

statements: install  ## remove the code that keeps a statement of the KIPs, one at a time: its tests must fail (IDS=236-09)
	@$(BIN)/python -m tests.statements $(IDS)

versions: install  ## run the checks of docs/versions.md, or one of them (NAME=...), and write their results into its table
	@$(BIN)/python -m tests.versions --write $(NAME)

check: install docs  ## ruff, mypy --strict, import-linter, links of the docs, lines by package
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m tests.lines

docs: install  ## the documentation as a site, in build/site; fails on links that lead nowhere
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

benchmark: install  ## the tables in docs/benchmarks.md, measured on this machine
	@$(BIN)/python -m benchmarks

dist: install  ## the sdist, the wheel and its SBOM, in dist/: the same bytes wherever and whenever they are built
	@$(MAKE) --no-print-directory distributions sbom
	@ls -l dist

# setuptools writes times, owners and modes of the work tree into an sdist, and files of its own that are other ones when an sdist is
# made from an sdist: it is packed anew, without them. The wheel is built from the sdist, because setuptools takes into a wheel what
# earlier builds left in the folder build/.
distributions:
	@rm -rf dist build/dist *.egg-info && mkdir -p dist build/dist
	@$(BIN)/python -m build --quiet --sdist --no-isolation --outdir build/dist .
	@rm -rf *.egg-info
	@tar -C build/dist -xzf build/dist/$(RELEASE).tar.gz && chmod -R u=rwX,go=rX build/dist/$(RELEASE)
	@rm -rf build/dist/$(RELEASE)/setup.cfg build/dist/$(RELEASE)/*.egg-info
	@tar -C build/dist --sort=name --format=pax --pax-option=delete=atime,delete=ctime --mtime=@$$SOURCE_DATE_EPOCH \
		--owner=0 --group=0 --numeric-owner --use-compress-program='gzip -9n' -cf dist/$(RELEASE).tar.gz $(RELEASE)
	@umask 022 && $(BIN)/python -m build --quiet --wheel --no-isolation --outdir dist build/dist/$(RELEASE)

# What the wheel requires, in the versions that are installed here, without what only tests and development need.
sbom:
	@rm -rf build/sbom && mkdir -p dist build/sbom
	@$(BIN)/python -m tests.required_distributions build/sbom/environment
	@sed 's/^dynamic = .*/version = "$(VERSION)"/' pyproject.toml > build/sbom/pyproject.toml
	@PYTHONPATH=build/sbom/environment $(BIN)/cyclonedx-py environment -S --pyproject build/sbom/pyproject.toml --mc-type library \
		--output-reproducible --output-file dist/$(RELEASE).cdx.json $(BIN)/python

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
	@rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
