# `make run` and `make test` do everything a newcomer needs, on a fresh Debian or in a fresh clone.
# `make test PY=3.13` runs on another Python, in an environment of its own; `make test T=tests/unit` selects tests.
PY ?=
PYTHON ?= python$(or $(PY),3)
VENV ?= .venv$(if $(PY),-$(PY))
T ?=
PORT ?= 8080
BIN := $(VENV)/bin
TOOLS := $(VENV)-tools
# More processes than cores, because many tests wait. A file stays in one process, which has stores of its own.
PROCESSES := $(if $(TEST_MONGO_URL)$(TEST_REDIS_URL)$(TEST_RABBITMQ_URL),,--numprocesses 6 --dist loadfile --no-loadscope-reorder)
# Without the cache of compiled modules, each process would compile all of them again.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(BIN)/pytest -q --durations 25 $(PROCESSES)

.PHONY: run test test-full test-compose test-kubernetes test-s3 fuzz fuzz-parsers mutants coverage torture bench lint screenshots alerts locks licenses audit sbom clean

run: $(VENV)/.run  ## the whole service on this machine, with sample packages
	@echo 'The command `pkgrepo` is $(BIN)/pkgrepo. To use it, open another terminal in this folder.'
	$(BIN)/pkgrepo up --demo --port $(PORT)

test: $(VENV)/.test  ## what to run before each commit: every operation and promise, in five minutes
	deploy/install-packages chromium clamav-daemon curl libfaketime nginx-light osslsigncode prometheus rabbitmq-server redis-server
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy .
	$(PYTEST) -m 'not full' $(T)

test-full: $(VENV)/.test  ## everything else: complete matrices, every fault, every story of the browser
	deploy/install-packages chromium clamav-daemon curl libfaketime nginx-light osslsigncode prometheus rabbitmq-server redis-server
	command -v npm >/dev/null || deploy/install-packages nodejs npm
	npm ci --no-audit --no-fund --prefix tests/support/oidc_provider
	$(PYTEST) -m full $(T)

test-compose: $(VENV)/.test  ## the compose file, scaled, with the container engine of DOCKER_HOST
	$(BIN)/pytest --containers tests/system/deploy/test_compose*.py

test-kubernetes: $(VENV)/.test  ## the Kubernetes manifests, as kustomize renders them and as an API server takes them; wants Go
	deploy/install-kustomize $(BIN)/kustomize
	tests/support/kubernetes build
	$(BIN)/pytest --control-plane --kustomize $(BIN)/kustomize tests/system/deploy/test_k*.py

S3_SERVER ?= $(BIN)/s3-server
S3_TESTS := tests/contract/upload_service/storage tests/service/upload_service/storage tests/service/deploy/operator \
	tests/system/deploy/test_pkgrepo_storage.py tests/system/faults/test_storage_moves.py
test-s3: $(VENV)/.test  ## the object storage on a real S3 server: S3_SERVER, else minio or versitygw, else MinIO built with Go
	tests/support/servers/install-s3-server $(S3_SERVER)
	$(BIN)/pytest --durations 10 --s3 $(S3_SERVER) $(S3_TESTS)

fuzz: $(VENV)/.test  ## five minutes of requests made up from the interface's document
	deploy/install-packages curl rabbitmq-server redis-server
	$(BIN)/python -m tests.support.system.fuzz 300

fuzz-parsers: $(VENV)/.fuzz  ## twenty minutes of inputs made up for what reads strangers' bytes; Linux on x86_64 alone
	$(BIN)/python -m tests.fuzz 60

mutants: $(VENV)/.test  ## break the product in each way of tests/mutants, and list the ways that no test notices
	$(BIN)/python -m tests.mutants

coverage: $(VENV)/.test  ## the branches that the tests of `make test` reach, in all processes
	$(BIN)/coverage erase
	$(BIN)/coverage run -m $(PYTEST:$(BIN)/%=%) -m 'not full' $(T)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --sort=cover

torture: $(VENV)/.test  ## forty minutes of everything that can fail, and tests/support/faults/RESULTS.md of it
	deploy/install-packages rabbitmq-server redis-server
	$(BIN)/python -m tests.support.faults.torture

bench: $(VENV)/.test  ## half an hour of everything that has a budget, and tests/bench/RESULTS.md of what it cost
	deploy/install-packages nginx-light rabbitmq-server redis-server
	$(BIN)/python -m tests.bench

lint: $(VENV)/.test  ## put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

screenshots: $(VENV)/.test  ## pictures of every page, light, dark and on a phone, in deploy/screenshots
	deploy/install-packages chromium rabbitmq-server redis-server
	$(BIN)/python -m tests.support.browser.screenshots

ALERTS := deploy/kubernetes/components/observability/alerts.yaml
alerts:  ## copy the alert rules into the shape that Kubernetes takes
	printf '%s\n' '# ../../../observability/rules.yaml, copied by `make alerts`.' 'apiVersion: monitoring.coreos.com/v1' \
		'kind: PrometheusRule' 'metadata: {name: pkgrepo}' 'spec:' >$(ALERTS)
	sed -n '/^groups:/,$$s/^./  &/p; /^$$/p' deploy/observability/rules.yaml >>$(ALERTS)

locks:  ## renew the locks; wants `uv`
	uv pip compile --universal --generate-hashes --no-annotate --no-header --upgrade --extra build --extra local --extra otel pyproject.toml -o requirements.lock
	uv pip compile --universal --generate-hashes --no-annotate --no-header --extra build --extra otel -c requirements.lock pyproject.toml -o requirements-image.lock
	uv pip compile --universal --generate-hashes --no-annotate --no-header --extra build --extra local --extra otel --extra test -c requirements.lock pyproject.toml -o requirements-test.lock
	uv pip compile --universal --generate-hashes --no-annotate --no-header --upgrade --group pyproject.toml:tools -o requirements-tools.lock
	uv pip compile --universal --generate-hashes --no-annotate --no-header --upgrade --group pyproject.toml:fuzz -o requirements-fuzz.lock

licenses: $(VENV)/.test  ## list the licences of what is installed, after new locks
	$(BIN)/python -m tests.support.licenses

audit: $(TOOLS)/.tools  ## ask PyPI whether anything locked is known to be vulnerable
	@for lock in requirements.lock requirements-test.lock requirements-tools.lock requirements-fuzz.lock; do \
		echo "$$lock:" && $(TOOLS)/bin/pip-audit --strict --disable-pip --require-hashes -r $$lock || { \
			echo "make audit: $$lock is not known to be free of vulnerabilities: see above what was found," \
				"or what could not be asked; this wants https://pypi.org" >&2; exit 1; }; \
	done

sbom: $(TOOLS)/.tools  ## write sbom.json: what requirements.lock installs, as CycloneDX; the same for the same lock
	$(TOOLS)/bin/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible -o sbom.json requirements.lock

# The environment is complete when it has pip: a failed attempt leaves only python.
$(BIN)/pip:
	$(PYTHON) -m venv $(VENV) || (deploy/install-packages python3-venv && $(PYTHON) -m venv --clear $(VENV))

$(VENV)/.run: requirements.lock pyproject.toml | $(BIN)/pip
	deploy/install-packages 'libcurl4|libcurl4t64'
	@echo 'Installing the dependencies into $(VENV), which takes about a minute …'
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

$(VENV)/.test: requirements-test.lock pyproject.toml | $(BIN)/pip
	deploy/install-packages 'libcurl4|libcurl4t64'
	$(BIN)/pip install --quiet --require-hashes -r requirements-test.lock
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

$(VENV)/.fuzz: requirements-fuzz.lock $(VENV)/.test
	$(BIN)/pip install --quiet --require-hashes -r requirements-fuzz.lock
	touch $@

# A separate lock, because the tools may need other versions than the product.
$(TOOLS)/.tools: requirements-tools.lock | $(BIN)/pip
	$(BIN)/python -m venv --clear $(TOOLS)
	$(TOOLS)/bin/pip install --quiet --require-hashes -r requirements-tools.lock
	touch $@

clean:
	rm -rf $(VENV) $(TOOLS) .venv-* sbom.json .coverage .coverage.* .mypy_cache .pytest_cache .ruff_cache .hypothesis
