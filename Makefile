# Needs git, make, Python >= 3.11 with venv, and a package index; everything else goes to .venv/.
#
#   make demo       install the base package and predict a first model
#   make test       format, lint, types and the quick tests (minutes)
#   make test-full  the same with full random counts, PyTorch and ONNX, in parts that record
#                   themselves: make test-full PART=3 runs one, PART=list names them
#   make nightly    sweeps of hours; FILE=designs runs those of files with this word
#   make mutants    break core formulas, count what the tests notice (hours); PACKAGE=serving
#   make lint       format, lint and types only
#   make format     let ruff reformat
#   make record     rewrite the recorded outputs of documentation and examples
#   make artefacts  make every shipped number that is stale from measured tables (up to an hour)
#   make accuracy   run the scorecard's suites that are stale and quick (10 CPU minutes if all are)
#   make coverage   answer new pairs of model and device; rewrites docs/reference/coverage.md
#   make core       compile hot modules into silicast-core, install it and test with it (needs a C compiler)
#   make core-test  compile it aside and test that bits are the same; says so where nothing compiles
#   make docs       build the documentation site into docs/_build/html
#   make package    build wheel and sdist into dist/, with a list of what they need (SBOM), audited

SHELL := /bin/sh
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
BASE := $(VENV)/.installed-base
DEV := $(VENV)/.installed-dev
FULL := $(VENV)/.installed-full
MUTANTS := $(VENV)/.installed-mutants
RELEASE := $(VENV)/.installed-release
CANDIDATES := python3 python3.14 python3.13 python3.12 python3.11 python
# One thread a process: the tests already use every core, and bits must not depend on BLAS.
export OPENBLAS_NUM_THREADS := 1
export OMP_NUM_THREADS := 1
# Bytecode is written: without it every process of the tests compiles the package and the tests anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-full nightly mutants lint format record artefacts accuracy coverage core core-test docs package clean

help:
	@sed -n 's/^#   //p' Makefile

$(BASE): pyproject.toml .ci/constraints.txt
	@command -v git >/dev/null || { echo "make: git is missing; install it (Debian, Ubuntu: apt install git)" >&2; exit 1; }
	@test -x $(BIN)/python || { \
	  for python in $(PYTHON) $(CANDIDATES); do \
	    if "$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	      echo "Making $(VENV)/ with $$("$$python" --version) (once, about a minute)"; \
	      exec "$$python" -m venv $(VENV); \
	    fi; \
	  done; \
	  echo "make: Python >= 3.11 with venv is missing; install it (Debian, Ubuntu: apt install python3 python3-venv)" >&2; \
	  exit 1; }
	@$(call install,-e .)
	@touch $@

$(DEV): $(BASE)
	@echo "Installing the development tools into $(VENV)/ (once, a minute or two)"
	@$(call install,-e '.[dev]')
	@touch $@

$(FULL): $(DEV)
	@echo "Installing PyTorch (CPU) and ONNX into $(VENV)/ (once, a few minutes)"
	@$(call install,-e '.[torch]' -e '.[onnx]')
	@touch $@

$(MUTANTS): $(DEV)
	@echo "Installing what makes mutants into $(VENV)/ (once)"
	@$(call install,-e '.[mutants]')
	@touch $@

$(RELEASE): $(DEV)
	@echo "Installing what builds and audits packages into $(VENV)/ (once)"
	@$(call install,-e '.[release]')
	@touch $@

# The versions we test with; where an index does not hold them, any that the package allows.
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check
define install
$(PIP) -c .ci/constraints.txt $(1) 2>$(VENV)/pip.log \
  || { echo "The pinned versions are not to be had; trying any that fit"; \
       $(PIP) $(1) 2>>$(VENV)/pip.log; } \
  || { echo "make: pip could not install (see $(VENV)/pip.log); it needs a package index (PIP_INDEX_URL)" >&2; exit 1; }
endef

demo: $(BASE)
	@echo '$$ silicast infer --model Llama-3.1-8B --device h100 --batch 8 --input-len 1024 --output-len 128'
	@$(BIN)/silicast infer --model Llama-3.1-8B --device h100 --batch 8 --input-len 1024 --output-len 128
	@echo
	@echo 'Try next:'
	@echo '  .venv/bin/silicast compare --model Llama-3.1-8B --device a100,h100,l40s --batch 8 --input-len 1024 --output-len 128'
	@echo '  .venv/bin/silicast explain --model Llama-3.1-8B --device h100 --batch 8 --input-len 1024 --output-len 128'
	@echo '  .venv/bin/silicast kernel gemm m=4096 n=4096 k=4096 dtype=bf16 --device h100'
	@echo '  .venv/bin/silicast --help'

lint: $(DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(DEV)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Types take a core for a minute and a half: they are checked beside the tests. Tests of a file share
# what they read: one worker runs them, in the order of the files, which ends with short doctests.
test: $(DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@{ $(BIN)/mypy >$(VENV)/mypy.log 2>&1; echo $$? >$(VENV)/mypy.status; } & \
	SILICAST_CORE=off $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m 'not full'; tests=$$?; wait; \
	if test "$$(cat $(VENV)/mypy.status)" != 0; then cat $(VENV)/mypy.log; exit 1; fi; exit $$tests

test-full: $(FULL) $(if $(PART),,lint)
	$(BIN)/python .ci/full_tests.py $(if $(filter list,$(PART)),--list,$(PART))

nightly: $(FULL)
	$(BIN)/python .ci/full_tests.py --nightly $(FILE)

mutants: $(MUTANTS)
	$(BIN)/python -m lab.mutants $(PACKAGE)

record: $(DEV)
	$(BIN)/python -m tests.docs.console

artefacts: $(DEV)
	$(BIN)/python -m lab.artefacts

accuracy: $(DEV)
	$(BIN)/python -m lab.scorecard --stale --jobs 2

coverage: $(DEV)
	$(BIN)/python benchmarks/coverage.py

core: $(DEV)
	@command -v cc >/dev/null || { echo "make: a C compiler is missing (Debian, Ubuntu: apt install gcc python3-dev); silicast runs without the core" >&2; exit 1; }
	rm -f dist/silicast_core-*.whl
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist ./core
	$(BIN)/python -m pip install --quiet --no-deps --force-reinstall dist/silicast_core-*.whl
	$(BIN)/silicast --version
	SILICAST_CORE=require $(BIN)/python -m pytest -q -m 'not full' tests/unit/core/test_compiled_core.py tests/unit/core/test_tape.py tests/unit/kernels/test_taped.py tests/unit/composition/step/test_clocked_call.py tests/unit/learning/test_lone_kernels.py tests/unit/serving tests/unit/composition/prices tests/property/test_serving_laws.py tests/property/test_serving_queues.py

# Compiler and Cython are not needed for anything else: without them nothing is checked, and said.
UNCHECKED := echo "make: NOT CHECKED: the compiled core, without
core-test: $(DEV)
	@rm -rf build/core-tools build/core-wheel build/core
	@if ! command -v cc >/dev/null; then $(UNCHECKED) a C compiler" >&2; \
	elif ! $(BIN)/python -c 'import os, sysconfig, sys; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'; then $(UNCHECKED) Python.h" >&2; \
	elif ! $(PIP) --target build/core-tools $$($(BIN)/python -c 'import tomllib; print(*tomllib.load(open("core/pyproject.toml", "rb"))["build-system"]["requires"])'); then $(UNCHECKED) Cython" >&2; \
	else set -e; \
	  PYTHONPATH=$(CURDIR)/build/core-tools $(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/core-wheel ./core; \
	  $(PIP) --target build/core --no-deps build/core-wheel/*.whl; \
	  PYTHONPATH=$(CURDIR)/src:$(CURDIR)/build/core SILICAST_CORE=require $(BIN)/python -m pytest -q tests/unit/core/test_compiled_core.py tests/unit/core/test_tape.py tests/unit/kernels/test_taped.py tests/unit/composition/step/test_clocked_call.py tests/unit/learning/test_lone_kernels.py; \
	fi

docs: $(DEV)
	$(BIN)/python -m sphinx -W -q -b html docs docs/_build/html
	@echo docs/_build/html/index.html

# The SBOM is of an environment that holds the wheel and what it needs, nothing else. The audit asks
# PyPI about each of them; without it the package is built and the audit says that it failed.
package: $(RELEASE)
	rm -rf dist build/wheel
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m venv --without-pip build/wheel
	$(BIN)/python -m pip --python build/wheel/bin/python install --quiet dist/*.whl
	build/wheel/bin/silicast --version
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-file dist/silicast.cdx.json build/wheel/bin/python
	$(BIN)/pip-audit --path build/wheel/lib/python*/site-packages || echo "make: the audit failed or names a vulnerability: see above" >&2

clean:
	rm -rf build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
