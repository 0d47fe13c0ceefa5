# Needs Python 3.11 or newer, make and git. Every target sets itself up: the first one run makes .venv and installs
# requirements.lock into it (about a minute); later ones start at once until the lock or pyproject.toml changes.
# Works with GNU make 3.81 (macOS) and newer.

# Candidates, best first; `make PYTHON=/path/to/python demo` names one.
PYTHON ?= python3 python3.13 python3.12 python3.11
# Passed on to the command: `make test ARGS="tests/house -q"`, `make demo ARGS=--quick`, `make lock ARGS=--upgrade`.
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# The user's index, proxy and certificate settings for pip stay in force; what would install somewhere else, or other
# versions than the lock's, does not. The same goes for a PYTHONPATH that would shadow the lock.
export PIP_USER := 0
export PIP_REQUIRE_HASHES := 0
export PIP_CONSTRAINT := /dev/null
export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport PIP_TARGET PIP_PREFIX PIP_ROOT PIP_PYTHON PIP_REQUIREMENT PIP_EDITABLE PIP_NO_DEPS PIP_BUILD_CONSTRAINT
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV

# A .venv that was copied or moved with its checkout is set up again: its scripts name the old place.
ifneq ($(shell cat $(READY) 2>/dev/null),$(CURDIR))
MOVED := again
endif

.DEFAULT_GOAL := help
.PHONY: help demo test check bench sglang lock clean again

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-6s %s\n", $$1, $$2 }' Makefile

demo: $(READY) ## replay real agent trajectories three ways on two emulated workers
	@$(BIN)/agentbatch demo $(ARGS)

test: $(READY) ## run the tests; ARGS goes to pytest
	@$(BIN)/python -m pytest $(ARGS)

check: $(READY) ## ruff, mypy --strict and the import contracts
	@$(BIN)/python -m ruff check --output-format concise .
	@$(BIN)/python -m mypy
	@$(BIN)/python -m mypy tests/typing
	@$(BIN)/lint-imports --no-logo

bench: $(READY) ## run the benchmarks; ARGS goes to them
	@$(BIN)/python -m benchmarks $(ARGS)

sglang: $(READY) ## the model beside the real SGLang on CPU; installs SGLang first (1.7 GB); ARGS goes to pytest
	@tests/sglang/install.sh build/sglang
	@$(BIN)/python -m pytest tests/sglang $(ARGS)

lock: $(READY) ## write requirements.lock anew from pyproject.toml; ARGS=--upgrade moves versions
	@$(BIN)/python -m uv --version >/dev/null 2>&1 || $(BIN)/python -m pip install -qq "uv>=0.5"
	@UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/python -m uv pip compile --quiet --universal --python-version 3.11 \
		--generate-hashes --extra dev $(ARGS) pyproject.toml -o requirements.lock
	@echo "requirements.lock: $$(grep -c '^[a-z]' requirements.lock) packages"

clean: ## remove .venv, caches and build output
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): requirements.lock pyproject.toml $(MOVED)
	@set -eu; \
	recent='import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))'; \
	usable='import sys; sys.exit(sys.version_info < (3, 11))'; \
	version='import platform; print(platform.python_version())'; \
	if [ -x $(BIN)/python ] && $(BIN)/python -c "$$usable" >/dev/null 2>&1; then \
		echo "set-up: using $(VENV) (Python $$($(BIN)/python -c "$$version"))"; \
	elif [ -e $(BIN)/python ] || [ -L $(BIN)/python ]; then \
		echo "$(VENV) is here, but its Python does not run or is older than 3.11: remove it with 'make clean', then again." >&2; \
		exit 1; \
	else \
		found=; \
		for candidate in $(PYTHON); do \
			if $$candidate -c "$$recent" >/dev/null 2>&1; then found=$$candidate; break; fi; \
		done; \
		if [ -z "$$found" ]; then \
			echo "agentbatch needs Python 3.11 or newer, with its venv module; tried: $(PYTHON)." >&2; \
			echo "Install one (on Debian and Ubuntu also the package python3-venv), or name it: make PYTHON=/path/to/python ..." >&2; \
			exit 1; \
		fi; \
		echo "set-up: making $(VENV) with $$found (Python $$($$found -c "$$version"))"; \
		$$found -m venv $(VENV); \
	fi; \
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null; \
	echo "set-up: installing requirements.lock (about a minute the first time)"; \
	$(BIN)/python -m pip install -qq --require-hashes -r requirements.lock; \
	$(BIN)/python -m pip install -qq --no-deps --no-build-isolation -e .; \
	printf '%s\n' "$(CURDIR)" > $(READY); \
	echo "set-up: done"
