# Developer interface. `make help` lists the targets; `make demo` and `make test` set up all they need.
SHELL := /bin/bash
.DEFAULT_GOAL := help

CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/openclaw-training
PY := .venv/bin/python
UV := $(or $(shell command -v uv 2>/dev/null),.bootstrap/bin/uv)
MEMBERS := core operator images/gateway images/judge images/trainer images/environment images/engine dev/cluster cli
IMAGES := gateway judge environment
PYTHON_DIRS := core operator images cli dev tests examples bench
# Most tests wait for something: two workers a core are done sooner than one.
UNIT_WORKERS := $(shell echo $$((2 * $$(nproc))))
export UV_LINK_MODE ?= hardlink
# Where the environment forbids it, every process compiles torch and transformers anew: half of a unit run.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  \033[1m%-14s\033[0m %s\n", $$1, $$2}'

.PHONY: demo
demo: env ## Main job: a real cluster, a policy that learns online, a plain verdict
	$(PY) -m examples.quickstart.demo $(DEMO_ARGS)

.PHONY: test
test: env ## All tests: unit, host, cluster, contract, e2e (brings the cluster up itself)
	$(MAKE) --no-print-directory cluster-up
	$(MAKE) --no-print-directory --jobs 2 --output-sync=target test-unit test-host
	$(MAKE) --no-print-directory cluster-up images postgres
	$(PY) -m pytest -n 3 --dist loadscope tests -m "(contract or cluster or e2e) and not slow"

.PHONY: test-unit
test-unit: env ## Unit tests, the long ones too
	$(PY) -m pytest -n $(UNIT_WORKERS) tests/unit

.PHONY: test-host
test-host: env ## What the cluster's ups, downs and crashes leave on this machine; mostly waits, so it runs beside the above
	$(PY) -m pytest tests/host

.PHONY: test-slow
test-slow: env cluster-up images ## The slow set: minutes of training in the cluster
	$(PY) -m pytest tests -m slow

.PHONY: bench
bench: env cluster-up ## Measure: the weight sync's overhead beside a bare Lease patch, in one run
	$(PY) -m bench.weight_sync $(BENCH_ARGS)

.PHONY: bench-gateway
bench-gateway: env $(CACHE)/bench/.stamp ## Measure: the recording gateway beside other proxies, in one run
	$(PY) bench/gateway.py $(BENCH_ARGS)

.PHONY: bench-soak
bench-soak: env ## Measure: 2,000 streams at once for ten minutes (BENCH_ARGS="--minutes 2" for less)
	$(PY) -m bench.soak $(BENCH_ARGS)

$(CACHE)/bench/.stamp: requirements/bench.txt | $(UV)
	@$(UV) venv --quiet --clear --python "$$(command -v python3)" $(CACHE)/bench
	@echo "environment: installing requirements/bench.txt into $(CACHE)/bench"
	@$(UV) pip sync --quiet --require-hashes --python $(CACHE)/bench/bin/python requirements/bench.txt
	@touch $@

.PHONY: check
check: env ## Fast loop: format, lint, types, import contracts, generated files, unit tests
	.venv/bin/ruff format --check $(PYTHON_DIRS)
	.venv/bin/ruff check $(PYTHON_DIRS)
	.venv/bin/mypy
	.venv/bin/lint-imports
	$(PY) -m pytest -q -n $(UNIT_WORKERS) tests/unit -m "not long"

.PHONY: format
format: env ## Format and fix what ruff can fix
	.venv/bin/ruff format $(PYTHON_DIRS)
	.venv/bin/ruff check --fix $(PYTHON_DIRS)

.PHONY: generate
generate: env ## Write the generated files: crds/, chart CRDs, docs tables
	$(PY) -m openclaw_core.generate
	$(PY) -m openclaw_operator.reason_table

.PHONY: env
env: .venv/.stamp ## Make .venv from the hashed development lock

.bootstrap/bin/uv:
	python3 -m venv .bootstrap
	.bootstrap/bin/pip install --quiet uv

.venv/.stamp: requirements/dev.txt $(addsuffix /pyproject.toml,$(MEMBERS)) | $(UV)
	@test -x $(PY) || $(UV) venv --quiet --python "$$(command -v python3)" .venv
	@echo "environment: installing requirements/dev.txt into .venv"
	@$(UV) pip sync --quiet --require-hashes --python $(PY) requirements/dev.txt
	@$(UV) pip install --quiet --python $(PY) --no-deps --no-build-isolation $(addprefix --editable ./,$(MEMBERS))
	@touch $@

COMPILE = $(UV) pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-annotate \
	--python-version 3.11 --custom-compile-command "make lock"

.PHONY: lock
lock: $(UV) ## Compile every hashed lock in requirements/ (LOCK_ARGS=--upgrade moves the pins)
	$(COMPILE) $(LOCK_ARGS) pyproject.toml --group dev $(addsuffix /pyproject.toml,$(MEMBERS)) -o requirements/dev.txt
	for image in $(IMAGES); do \
	  $(COMPILE) $(LOCK_ARGS) core/pyproject.toml images/$$image/pyproject.toml -o requirements/$$image.txt; done
	$(COMPILE) $(LOCK_ARGS) core/pyproject.toml operator/pyproject.toml -o requirements/operator.txt
	# SGLang's pins lead: torch and trainer follow them, so that engine and trainer share a layer.
	$(COMPILE) $(LOCK_ARGS) requirements/engine.in -o requirements/engine.txt
	$(COMPILE) $(LOCK_ARGS) -c requirements/engine.txt requirements/torch.in -o requirements/torch.txt
	$(COMPILE) $(LOCK_ARGS) -c requirements/torch.txt core/pyproject.toml images/trainer/pyproject.toml \
	  -o requirements/trainer.txt
	$(COMPILE) $(LOCK_ARGS) requirements/bench.in -o requirements/bench.txt
	for whole in sglang uv quickstart; do \
	  $(COMPILE) $(LOCK_ARGS) --no-deps requirements/$$whole.in -o requirements/$$whole.txt; done

.PHONY: postgres
postgres: env ## Debian's PostgreSQL, where it is missing: the tests start throwaway servers of their own
	@ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || $(PY) -c \
	  'from openclaw_cluster import packages; packages.install(["postgresql"])'

.PHONY: images
images: env ## Build and push the images whose inputs changed
	$(PY) -m dev.images.build $(IMAGES_ARGS)

.PHONY: cluster-up
cluster-up: env ## Bring up the embedded Kubernetes (or check KUBECONTEXT); idempotent
	$(PY) -m openclaw_cluster up

.PHONY: cluster-down
cluster-down: env ## End every process, mount, route and firewall rule of the embedded cluster
	$(PY) -m openclaw_cluster down

.PHONY: cluster-purge
cluster-purge: env ## cluster-down, and remove its data, volumes and images
	$(PY) -m openclaw_cluster purge
