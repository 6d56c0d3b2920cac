# `make` or `make help` lists what there is. Everything is installed into .venv and nothing outside it is touched.
# Choose the Python by `make demo PYTHON=/opt/rocm-venv/bin/python`: a torch it already has is used, never replaced.

PYTHON ?= python3
VENV ?= .venv
# Installed only where PYTHON has no torch.
TORCH ?= torch==2.13.0
# Passed on to pytest: make test PYTEST_ARGS="-k replay"
PYTEST_ARGS ?=
JOBS ?= 2

PIP = "$(VENV)/bin/python" -m pip --disable-pip-version-check install --quiet --constraint "$(VENV)/constraints.txt"
RUN = "$(VENV)/bin/python" -m

.DEFAULT_GOAL := help
.PHONY: help demo test lint bench evidence zoo gpu fidelity alarms samples clean

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /make \1\t/p' Makefile

demo: $(VENV)/.examples ## audit a small Llama on the simulated device and say where the report is
	@"$(VENV)/bin/rocm-audit" run examples/llama_train.py --device sim -o reports/demo --force
	@echo "The report: $(CURDIR)/reports/demo/report.html"

test: $(VENV)/.test ## the tests that need no GPU, under ten minutes on two cores
	$(RUN) pytest -n $(JOBS) -m "not gpu and not slow and not evidence" $(PYTEST_ARGS)

lint: $(VENV)/.test $(VENV)/.lint ## ruff, mypy --strict, import contracts
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy
	"$(VENV)/bin/lint-imports" --no-cache

bench: $(VENV)/.test ## what tracing, replaying and reporting cost here (medians)
	$(RUN) tests.bench

evidence: $(VENV)/.test ## the long tests: real kills, big reports, whole models
	$(RUN) pytest -m "(slow or evidence) and not gpu" $(PYTEST_ARGS)

zoo: $(VENV)/.zoo ## every program of the zoo: audited on the simulated device (docs/zoo.md), held to the invariant
	rm -rf reports/zoo
	$(RUN) tests.zoo.table reports/zoo
	$(RUN) pytest tests/zoo $(PYTEST_ARGS)

gpu: $(VENV)/.test ## the tests that need a HIP or CUDA GPU, and the substituted HIP branches on it
	$(RUN) pytest -m gpu $(PYTEST_ARGS)
	$(RUN) pytest tests/device/test_gpu_hip_branches.py $(PYTEST_ARGS)

fidelity: $(VENV)/.test ## does a trace made without a GPU lead to the ops that the GPU here runs
	$(RUN) tests.fidelity

# On a GPU: make alarms DEVICE=cuda ALARMS="--jobs 12 --time-budget 240 --samples 3"
DEVICE ?= sim
ALARMS ?= --samples 3 --jobs $(JOBS)
alarms: $(VENV)/.test $(VENV)/.zoo ## how often a healthy device is accused: samples of torch's op tests, the zoo's programs
	@mkdir -p reports/alarms
	$(RUN) tests.alarms --device "$(DEVICE)" $(ALARMS) -o "reports/alarms/$(DEVICE).json"
	$(RUN) tests.alarms --device "$(DEVICE)" $(ALARMS) --zoo reports/zoo -o "reports/alarms/$(DEVICE)-zoo.json"
	$(RUN) tests.alarms.page reports/alarms/*.json

samples: $(VENV)/.test ## the checked-in report and site in reports/sample, anew from their runs
	$(RUN) tests.samples

clean: ## remove .venv and everything that was built
	rm -rf "$(VENV)" build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find audit tests examples -name __pycache__ -prune -exec rm -rf {} +

# --- set-up: one stamp for each step, so that a second `make` goes straight to work ---------------------------------

$(VENV)/.made: .make/set_up.py
	@"$(PYTHON)" .make/set_up.py "$(VENV)" "$(TORCH)"
	@touch "$@"

$(VENV)/.examples: $(VENV)/.made pyproject.toml
	@$(PIP) --editable ".[examples]"
	@touch "$@"

$(VENV)/.test: $(VENV)/.made pyproject.toml
	@$(PIP) --editable ".[test]"
	@touch "$@" "$(VENV)/.examples"

$(VENV)/.zoo: $(VENV)/.made pyproject.toml
	@$(PIP) --editable ".[zoo]"
	@touch "$@" "$(VENV)/.test" "$(VENV)/.examples"

$(VENV)/.lint: $(VENV)/.made pyproject.toml
	@$(PIP) --editable ".[lint]"
	@touch "$@"
