# Two commands set everything up on a machine with Python 3.11 or newer and pip:
#   make demo   trains a policy and prints the status of its run
#   make test   installs the tests' environment and Kubernetes' programs, then runs the tests
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
DEMO_SEED ?= 0
E2E_ARGS ?=
CONTAINER_TOOL ?= docker
TAG ?= latest
VARIANT ?= cuda
IMAGE_ARGS = $(if $(BASE),--build-arg BASE=$(BASE)) --build-arg VERSION=$(TAG) \
  --build-arg REVISION=$(shell git rev-parse HEAD 2>/dev/null || echo unknown)

.DEFAULT_GOAL := help
.PHONY: help demo test programs lint format typecheck panel docs bench nightly chaos crd images e2e clean

help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Drivetrain needs Python 3.11 or newer; try: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.trainer: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing the trainer and its libraries (torch is large: minutes on the first run)"
	@$(PIP_INSTALL) -e '.[analysis,export,trainer]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing the development environment (torch is large: minutes on the first run)"
	@$(PIP_INSTALL) -e '.[dev]'
	@touch $@ $(VENV)/.trainer

demo: $(VENV)/.trainer ## Train InvertedDoublePendulum to a return of 9,000 and print the status
	$(BIN)/drivetrain run -f examples/inverted-double-pendulum-sac.yaml --fresh seed=$(DEMO_SEED)

test: $(VENV)/.dev ## Unit, contract, learning and cluster tests
	$(BIN)/python -m tests.support.kubernetes.programs --optional control-plane helm
	$(BIN)/python -m pytest -m "not nightly and not bench and not gpu and not e2e"

programs: $(VENV)/.dev ## Get Kubernetes' programs ahead, for `test` and `e2e` (NAMES=... picks)
	$(BIN)/python -m tests.support.kubernetes.programs $(or $(NAMES),node)

lint: $(VENV)/.dev ## Linters, formatter, types, import contracts, generated files, changelog
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --check --no-cache .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m drivetrain_api.crd --check

format: $(VENV)/.dev ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

panel: $(VENV)/.dev ## Draw the documentation's pictures: the live panel, figures of runs, a comparison
	$(BIN)/python -m tests.support.panel.picture
	$(BIN)/python -m tests.support.example_figure
	$(BIN)/python -m tests.support.example_report

docs: $(VENV)/.dev ## Build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(VENV)/.dev ## Side-by-side measurements into build/bench (NAME=... picks one)
	$(BIN)/python -m tests.bench $(NAME)

nightly: $(VENV)/.dev ## Long trials: learning curves, soaks, chaos
	$(BIN)/python -m pytest -m "nightly and not gpu" --timeout 7200
	HYPOTHESIS_PROFILE=nightly $(BIN)/python -m pytest tests/unit --timeout 7200 -m "not nightly and not gpu and not slow"

chaos: $(VENV)/.dev ## Chaos trials alone (SEED=... TRIALS=... FAULT="disk full")
	$(if $(SEED),DRIVETRAIN_CHAOS_SEED=$(SEED)) $(if $(TRIALS),DRIVETRAIN_CHAOS_TRIALS=$(TRIALS)) \
	  $(if $(FAULT),DRIVETRAIN_CHAOS_FAULT="$(FAULT)") $(BIN)/python -m pytest -s -m nightly \
	  tests/e2e/local/test_chaos.py

crd: $(VENV)/.dev ## Write the CRD generated from the models
	$(BIN)/python -m drivetrain_api.crd

images: ## Build both images (CONTAINER_TOOL=docker|buildah, TAG=..., VARIANT=cuda|cpu, BASE=...)
	$(CONTAINER_TOOL) build -f operator/Dockerfile -t drivetrain-operator:$(TAG) $(IMAGE_ARGS) .
	$(CONTAINER_TOOL) build -f trainer/Dockerfile -t drivetrain-trainer:$(TAG) $(IMAGE_ARGS) \
	  --build-arg VARIANT=$(VARIANT) .

e2e: $(VENV)/.dev ## A whole node: chart, images, real runs (DRIVETRAIN_E2E_KUBECONFIG=... for another)
	$(BIN)/python -m tests.support.kubernetes.programs $(if $(DRIVETRAIN_E2E_KUBECONFIG),kubectl helm,node)
	$(BIN)/python -m pytest -m "e2e and not nightly" --timeout 1800 $(E2E_ARGS) \
	  tests/e2e/cluster

clean: ## Remove what builds and tests leave (not the environment, not your runs)
	rm -rf build site dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
