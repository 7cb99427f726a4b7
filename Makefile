# eagle-console: everything a developer does. `make run` and `make test` need git, make and Python 3.11 only.

PYTHON   ?= $(shell command -v python3.11 || command -v python3)
VENV     := .venv
PIPELINE := .pipeline
BIN      := $(VENV)/bin
VERIFIER := $(PIPELINE)/SmolLM2-135M-Instruct

.PHONY: run demo test test-fast test-slow check format bench soak pipeline debian-packages clean

run: $(VENV)/.ready pipeline  ## open the console on the embedded host, every stage real
	$(BIN)/eagle-console demo

demo: $(VENV)/.ready  ## the embedded host as it is: real stages after `make pipeline`, else replays of recorded runs
	$(BIN)/eagle-console demo

test: $(VENV)/.ready debian-packages check  ## everything but the real models, set-up included
	$(BIN)/pytest -n 3 -m "not slow and not system"
	$(BIN)/pytest -m "not slow and system"

test-fast: $(VENV)/.ready  ## under two minutes, no servers outside Python
	$(BIN)/pytest -n 3 -m "not slow and not system"

# Most of these wait for one server to start, on one core; two files at a time. The recipes are timed: alone.
test-slow: $(VENV)/.ready debian-packages pipeline  ## real vLLM on the CPU
	$(BIN)/pytest -m slow -n 2 --dist loadfile --no-loadscope-reorder --ignore tests/e2e/test_recipes.py
	$(BIN)/pytest -m slow tests/e2e/test_recipes.py

check: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --python-version 3.10 remote pipeline/plan
	$(BIN)/lint-imports

format: $(VENV)/.ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.ready debian-packages  ## speed and size beside named peers, in one run
	$(BIN)/python -m bench

soak: $(VENV)/.ready  ## long runs by hand
	$(BIN)/python -m bench.soak

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "eagle-console needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -e '.[dev]'
	touch $@

pipeline: $(PIPELINE)/.ready  ## the pinned CPU environment (3.7 GB) and the quick start's verifier (269 MB)

# pip, not uv: where a local wheel of torch's CPU build is offered, pip takes it. Elsewhere plain torch is a CUDA build.
$(PIPELINE)/.ready: pipeline/requirements-cpu.txt pipeline/verifier.py
	mkdir -p $(PIPELINE)
	$(PYTHON) -m pipeline.environments cpu $(PIPELINE)/ml
	rm -rf $(VERIFIER)
	$(PIPELINE)/ml/bin/python -m pipeline.verifier $(VERIFIER)
	touch $@

# What the tests start for real: sshd, a C compiler for the fake libnvidia-ml, the login shells of odd hosts, the network
# tools of the bad ones. Only what is missing is installed.
debian-packages:
	@missing=; \
	[ -x /usr/sbin/sshd ] || missing="$$missing openssh-server"; \
	command -v ssh >/dev/null || missing="$$missing openssh-client"; \
	command -v cc >/dev/null || missing="$$missing gcc libc6-dev"; \
	command -v ip >/dev/null || missing="$$missing iproute2"; \
	for shell in zsh fish tcsh; do command -v $$shell >/dev/null || missing="$$missing $$shell"; done; \
	if [ -n "$$missing" ]; then \
	    echo "installing:$$missing"; \
	    apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $$missing; \
	fi

clean:
	rm -rf $(VENV) $(PIPELINE) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
