# Every target prepares what it needs. Paths are relative, so a checkout may lie anywhere, also under a name with spaces.
SHELL := /bin/sh
PY := .venv/bin/python
LONGHAUL := $(PY) -m services.cli.main
T ?= tests
ARGS ?=
RECIPES := services/sandbox/templates/recipes
CONFORMANCE := tests/contract/sandbox
CHECKED := agents workflows services gpu tests

# A venv that was moved with its checkout, whose interpreter is gone, or into which an installation was interrupted, is
# made anew.
ifneq ($(shell [ "$$(cat .venv/.place 2>/dev/null)" = "$$PWD" ] && [ ! -e .venv/.installing ] && $(PY) -c '' 2>/dev/null && echo sound),sound)
.PHONY: .venv/.place
endif

.DEFAULT:
	@echo "There is no target '$@': \`make help\` lists those there are." >&2; exit 2

.PHONY: help setup up down status doctor demo test test-docker check bench fault stress attacks docs recordings lock clean
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

setup: .venv/.project ## everything into .venv (no root, no compiler, no Docker)
	@$(LONGHAUL) template build

up: setup ## the stack in the foreground; Ctrl-C stops it
	@exec $(LONGHAUL) up $(ARGS)

down: .venv/.project ## stop a running stack
	@$(LONGHAUL) down $(ARGS)

status: .venv/.project ## what runs
	@$(LONGHAUL) status $(ARGS)

doctor: .venv/.project ## what this machine lacks
	@$(LONGHAUL) doctor $(ARGS)

demo: setup ## three teams at work, on a running stack or on one of its own; one with ARGS=code_repair
	@exec $(LONGHAUL) demo $(ARGS)

test: setup ## the tests; a part of them with T=tests/unit/agents
	@$(PY) -m pytest $(T) --ignore=tests/engine $(ARGS)

test-docker: setup ## sandboxes as containers, with runc and gVisor (root; apt install docker.io runsc iproute2)
	@$(PY) -m pytest tests/engine $(ARGS)
	@LH_TEST_BACKENDS=docker $(PY) -m pytest $(CONFORMANCE) --ignore=$(CONFORMANCE)/test_snapshots.py $(ARGS)
	@LH_TEST_BACKENDS=gvisor $(PY) -m pytest $(addprefix $(CONFORMANCE)/test_,execs.py isolation.py) $(ARGS)

check: .venv/.project ## lint, format, types, import rules, docs
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy $(CHECKED)
	@.venv/bin/lint-imports --no-cache
	@$(PY) -m pytest -q tests/unit/test_docs.py tests/unit/test_names.py tests/unit/test_architecture.py

bench: setup ## one benchmark: NAME=turn
	@$(PY) -m tests.bench $(NAME) $(ARGS)

fault: setup ## kills under running tasks, at moments of chance; the same again with ARGS=--seed=N
	@$(PY) -m pytest tests/fault --kills 60 $(ARGS)

stress: setup ## 200 tasks of three tenants, 20 at once; in small with ARGS="--tasks 50 --running 5"
	@$(PY) -m tests.stress $(ARGS)

attacks: setup ## from inside sandboxes, on every backend that works here; ARGS="--backend docker network"
	@$(PY) -m tests.attacks $(ARGS)

docs: .venv/.project ## write the generated pages of docs/reference
	@$(PY) -m tests.support.reference

recordings: setup ## record the demos anew, for tests/replay
	@$(PY) -m tests.replay.demos

lock: ## new lock files (needs uv)
	@uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -q \
		pyproject.toml --extra dev -o requirements.lock
	@uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -q \
		requirements-sandbox.in -o requirements-sandbox.lock
	@cd $(RECIPES) && $(CURDIR)/$(PY) -c 'import tomllib; print(*tomllib.load(open("standard_dev.toml", "rb"))["packages"], sep="\n")' \
		| uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -q \
		- -o standard_dev.lock

clean: ## remove .venv and caches; data and the sandbox template stay
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache longhaul.egg-info
	@find agents workflows services gpu tests -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.place:
	@sh .ci/python .venv
	@printf '%s' "$$PWD" > .venv/.place

.venv/.packages: .venv/.place requirements.lock
	@echo "Installing packages into .venv …"
	@$(PY) -m services.pip "The packages" .venv --only-binary :all: --require-hashes -r requirements.lock
	@touch .venv/.packages

.venv/.project: .venv/.packages pyproject.toml
	@$(PY) -m services.pip "Longhaul itself" .venv --no-deps --no-build-isolation --no-index -e .
	@touch .venv/.project
