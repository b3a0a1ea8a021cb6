# `make run` and `make test` do everything a newcomer needs, on a fresh Debian or in a fresh clone.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: run test fuzz torture bench lint locks clean

run: $(VENV)/.run  ## the whole service on this machine, with sample packages
	$(BIN)/pkgrepo up --demo

test: $(VENV)/.test  ## everything that must hold before a change lands
	deploy/install-packages curl libfaketime rabbitmq-server redis-server
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy .
	$(BIN)/pytest

fuzz: $(VENV)/.test  ## five minutes of requests made up from the interface's document
	deploy/install-packages curl rabbitmq-server redis-server
	$(BIN)/python -m tests.system.fuzz 300

torture: $(VENV)/.test  ## half an hour of everything that can fail, and tests/system/RESULTS.md of it
	deploy/install-packages rabbitmq-server redis-server
	$(BIN)/python -m tests.system.torture

bench: $(VENV)/.test  ## what uploads cost, and the memory that a crowd of them needs
	deploy/install-packages rabbitmq-server redis-server
	$(BIN)/python -m tests.bench.transfer
	$(BIN)/python -m tests.bench.crowd

lint: $(VENV)/.test  ## put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

locks:  ## renew the locks; wants `uv`
	uv pip compile --universal --generate-hashes --no-annotate --no-header --upgrade --extra build --extra local pyproject.toml -o requirements.lock
	uv pip compile --universal --generate-hashes --no-annotate --no-header --extra build --extra local --extra test -c requirements.lock pyproject.toml -o requirements-test.lock

# Made whole when it has pip: a failed attempt leaves a python behind.
$(BIN)/pip:
	$(PYTHON) -m venv $(VENV) || (deploy/install-packages python3-venv && $(PYTHON) -m venv --clear $(VENV))

$(VENV)/.run: requirements.lock pyproject.toml | $(BIN)/pip
	deploy/install-packages 'libcurl4|libcurl4t64'
	$(BIN)/pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

$(VENV)/.test: requirements-test.lock pyproject.toml | $(BIN)/pip
	deploy/install-packages 'libcurl4|libcurl4t64'
	$(BIN)/pip install --quiet --require-hashes -r requirements-test.lock
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
