# `make help` lists what there is. Every target works on a fresh clone: set-up happens when it is needed.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

VENV := .venv
PY := $(VENV)/bin/python
SCHEMA := src/shoal/kube/schema
STAMPS := $(VENV)/.stamps
PAGE_SOURCES := $(shell find web -type f -not -path '*/node_modules/*' 2>/dev/null)
PYTEST := $(PY) -m pytest
# One more than the two cores of the machine that is reckoned with: most tests wait for processes.
WORKERS ?= 3

export PATH := $(abspath $(VENV)/bin):$(PATH)

# Where bytecode may not be written, every process that a test starts compiles Shoal again, and so does every run of pytest.
unexport PYTHONDONTWRITEBYTECODE

##@ Use

.PHONY: up
up: setup ## set up, then run everything there is (`shoal up`); ARGS="--dir D" for options
	@exec $(VENV)/bin/shoal up $(ARGS)

.PHONY: setup
setup: $(STAMPS)/installed $(STAMPS)/schema $(STAMPS)/kubectl $(STAMPS)/page ## venv, dependencies, schema tables, kubectl, the page
	@:

##@ Check

.PHONY: test
test: setup $(STAMPS)/podman $(STAMPS)/prometheus $(STAMPS)/chromium ## the whole test suite
	@scripts/test.sh $(WORKERS)

.PHONY: check
check: setup lint verify-generated ## format, lint, types, unit and architecture tests: under a minute
	$(PY) -m mypy
	HYPOTHESIS_PROFILE=quick $(PYTEST) -q -n $(WORKERS) --dist loadgroup -p no:schemathesis tests/arch tests/unit

.PHONY: lint
lint: setup ## format and lint, without changing anything
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .

.PHONY: chaos
chaos: setup ## the tests that break things on purpose
	@scripts/chaos.sh $(WORKERS) $(PYTEST)

.PHONY: soak
soak: setup ## full sizes, hours of work, long rounds of chaos, a million fuzzed inputs; ARGS="--scenes pods --hold 5" for a part
	@failed=0; $(PY) bench/soak.py $(ARGS) || failed=1; \
	SHOAL_CHAOS_ROUNDS=5 SHOAL_FUZZ_INPUTS=1000000 scripts/chaos.sh 1 $(PYTEST) || failed=1; exit $$failed

.PHONY: limits
limits: setup ## write docs/operations/limits.md and its curves from the results of the soak
	$(PY) bench/limits_page.py

.PHONY: bench
bench: setup ## benchmarks as ratios to what the machine can do; fails when one is short
	@bench/run $(ARGS)

##@ Work on it

.PHONY: format
format: setup ## format the code and fix what can be fixed
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

.PHONY: lock
lock: setup ## resolve pyproject.toml into the requirements files again
	scripts/lock.sh

.PHONY: docs
docs: setup $(STAMPS)/docs ## build the documentation as a site in build/site and follow its links; ARGS=--serve shows it
	@$(PY) scripts/docs/site.py --zensical $(VENV)/docs/bin/zensical $(ARGS)

.PHONY: screenshots
screenshots: setup $(STAMPS)/chromium ## take the pictures of the page that README and the guides show, in docs/images
	@$(PY) scripts/screenshots.py $(ARGS)

.PHONY: sbom
sbom: setup ## write build/sbom.json, the bill of materials of what users install, and audit it
	$(PY) scripts/sbom.py

.PHONY: image
image: setup ## build the container image with podman; ARGS="--output FILE" and others: scripts/image.sh --help
	@scripts/image.sh $(ARGS)

.PHONY: release
release: setup ## build everything that users get in dist/ and tag it; ARGS=--dry-run only builds (docs/operations/releasing.md)
	@$(PY) scripts/release.py $(ARGS)

.PHONY: verify-generated
verify-generated: setup ## check that generated code and tables are what their source makes
	$(PY) scripts/verify_generated.py
	$(PY) scripts/metrics_table.py --check
	$(PY) bench/limits_page.py --check
	scripts/generate_wire.sh --check

.PHONY: generate
generate: setup ## make src/shoal/wire from proto/ again
	scripts/generate_wire.sh

.PHONY: clean
clean: ## remove everything that set-up and tests made
	rm -rf $(VENV) $(SCHEMA)/generated build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help
help: ## this list
	@scripts/help.sh $(MAKEFILE_LIST)

# Stamps: each says that a step of the set-up is done for the files it depends on.

$(STAMPS)/installed: pyproject.toml requirements-dev.lock scripts/install.sh
	@scripts/install.sh $(VENV)
	@mkdir -p $(@D) && touch $@

$(STAMPS)/schema: $(STAMPS)/installed $(wildcard $(SCHEMA)/*.py)
	@$(PY) -m shoal.kube.schema.compile
	@touch $@

$(STAMPS)/kubectl: scripts/kubectl.sh | $(STAMPS)/installed
	@scripts/kubectl.sh $(VENV)
	@touch $@

# Where the page cannot be built everything else goes on, and the next set-up tries again.
$(STAMPS)/page: $(PAGE_SOURCES) scripts/page.sh scripts/page/requirements.lock | $(STAMPS)/installed
	@scripts/page.sh $(VENV) $@

$(STAMPS)/docs: scripts/docs/requirements.lock | $(STAMPS)/installed
	@echo "setup: installing what makes the site"
	@$(PY) -m venv --clear $(VENV)/docs
	@$(VENV)/docs/bin/pip install -qq --disable-pip-version-check --no-deps --require-hashes -r $<
	@touch $@

$(STAMPS)/podman: scripts/podman.sh | $(STAMPS)/installed
	@scripts/podman.sh $@

$(STAMPS)/prometheus: scripts/prometheus.sh | $(STAMPS)/installed
	@scripts/prometheus.sh $@

$(STAMPS)/chromium: scripts/chromium.sh | $(STAMPS)/installed
	@scripts/chromium.sh $@
