# What people type in a clone. Needs python3 (3.11 or newer), python3-venv and make; everything else goes into .venv
# and, for `make test-oldest`, .venv-oldest.

PYTHON ?= python3
PORT ?= 7433
# Cards that are pretended where there is no NVIDIA driver: nodes x cards : model.
FAKE_GPUS ?= 4x8:V100-32GB

VENV := .venv
BIN := $(VENV)/bin
STATE := .millpond
POND := env -u MILLPOND_URL -u MILLPOND_TOKEN MILLPOND_STATE=$(STATE) $(BIN)/pond
CARDS := $(if $(wildcard /proc/driver/nvidia/version),,--fake-gpus $(FAKE_GPUS))
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# Where bytecode is not kept, each of the hundreds of programs that tests start would be compiled anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install dev up down test test-long test-thorough kernels core test-compiled test-oldest kubernetes test-kubernetes screenshots lint types imports check clean

help:
	@echo 'make install   the environment in $(VENV), with $(BIN)/pond'
	@echo 'make up        install, start a server here, train a small gang on it'
	@echo 'make down      stop that server and its jobs, and nothing else'
	@echo 'make test      the tests, in a few minutes; they need no outside service'
	@echo 'make test-long whole walks and whole benchmarks, some minutes more'
	@echo 'make test-thorough  the walks with many more seeds, for a night'
	@echo 'make test-compiled  the tests of the scheduler, on the compiled one'
	@echo 'make test-oldest  some quick tests, on the oldest versions of what Millpond stands on'
	@echo 'make test-kubernetes  jobs as pods of a real cluster on this machine; builds it first (root)'
	@echo 'make screenshots  a picture of each page of the portal, in docs/images'
	@echo 'make check     lint, types, import rules, tests'

install: $(VENV)/.installed

dev: $(VENV)/.installed-dev

$(VENV)/.installed: pyproject.toml
	@echo 'installing into $(VENV)'
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Millpond needs Python 3.11 or newer")'
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --editable '.[server]'
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/.installed
	@$(PIP) install --editable '.[dev]'
	@touch $@

up: install
	@if $(POND) ps -o name >/dev/null 2>&1; then \
	    echo 'the server is up already'; \
	else \
	    $(POND) up --detach --port $(PORT) $(CARDS); \
	fi
	@job=$$($(POND) submit examples/gang.yaml) && \
	echo "submitted examples/gang.yaml as $$job; its output:" && \
	$(POND) logs -f $$job && $(POND) wait $$job
	@$(POND) nodes
	@echo "the server listens at $$(sed -n 's/.*"url": *"\([^"]*\)".*/\1/p' $(STATE)/server.json)"
	@echo "go on with: export MILLPOND_STATE='$$PWD/$(STATE)'; $(BIN)/pond ps -a   (make down stops it)"

down:
	@if [ -x $(BIN)/pond ]; then $(POND) down; else echo 'nothing is installed here, so nothing runs'; fi

# Three on two cores: one of them often waits, for a process or a page. What walks long or through many seeds or real
# programs, measures the gate in all its cases, or holds for both databases on PostgreSQL, is in `make test-long`.
TESTERS := $(shell n=$$(nproc) && echo $$((n < 3 ? 3 : n)))

# Each group is one plain pytest, which collects its own folders alone; workers of xdist would each collect them all, and
# report every test to another process. The group that takes longest begins first; what no group names is among `others`.
GROUPS := engines server accounts scheduling pods others node
folders_accounts := tests/server/api tests/server/auth tests/server/web
folders_scheduling := tests/scheduling tests/simulation tests/forecasting tests/model
folders_pods := tests/engines/kubernetes
folders_engines := tests/engines $(folders_pods:%=--ignore=%)
folders_node := tests/node tests/job tests/fake_driver
folders_server := tests/server $(folders_accounts:%=--ignore=%)
folders_others := tests $(patsubst %,--ignore=%,tests/server tests/engines $(folders_scheduling) $(folders_node))
test: dev
	@$(MAKE) --no-print-directory --jobs $(TESTERS) --output-sync --keep-going $(GROUPS:%=test-of-%)

test-of-%:
	@echo 'tests of $*:'
	@$(BIN)/pytest -m 'not long and not kubernetes' $(folders_$*)

test-long: kernels
	$(BIN)/pytest --numprocesses $(TESTERS) --dist worksteal -m 'long and not thorough'

# Once for all processes of the long tests, each of which would else compile them.
kernels: dev
	$(BIN)/python -m millpond.simulation.kernel_warmup

test-thorough: dev
	$(BIN)/pytest --numprocesses auto --dist worksteal -m thorough tests/scheduling tests/node tests/engines

# The scheduler as `pond compile` makes it: some three minutes of the compiler, once for its sources, then the tests.
core: dev
	$(BIN)/pond compile

test-compiled: core
	MILLPOND_CORE=compiled $(BIN)/pytest --numprocesses 2 --dist worksteal -m 'not long and not sources' \
	    tests/scheduling tests/simulation

# That the oldest versions which pyproject.toml allows do: a server starts, and programs, people and browsers are answered.
# All are installed anew when that file changes, within seconds where uv keeps them (in ~/.cache/uv). A coroutine that an
# older library calls and does not await is a mere warning else.
OLDEST := .venv-oldest
oldest_tests := tests/client tests/server/api/test_api.py tests/server/auth/portal/test_portal.py \
    $(addprefix tests/server/auth/test_,logging_in.py oidc_logins.py tokens.py) tests/server/sessions \
    tests/server/startup/test_starting.py tests/server/store \
    tests/end_to_end/jobs/test_running_jobs.py tests/end_to_end/kubernetes/test_kubernetes.py
test-oldest: $(OLDEST)/.installed
	$(OLDEST)/bin/pytest --numprocesses $(TESTERS) --dist worksteal -m 'not long' -W error::RuntimeWarning \
	    -W error::pytest.PytestUnraisableExceptionWarning $(oldest_tests)

$(OLDEST)/.installed: export UV_SYSTEM_CERTS := 1
$(OLDEST)/.installed: pyproject.toml | dev
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(OLDEST)
	@index=$${PIP_INDEX_URL:-$$($(BIN)/pip config list | sed -n "s/^global.index-url='\(.*\)'/\1/p")}; \
	$(BIN)/uv pip install $${index:+--default-index "$$index"} --quiet --python $(OLDEST) --resolution lowest-direct --editable '.[dev]'
	@touch $@

# A control plane and a kubelet, built once from Debian's source package (root; some minutes), run on loopback.
kubernetes:
	tests/engines/kubernetes/real/build

test-kubernetes: dev kubernetes
	$(BIN)/pytest -n0 -m kubernetes tests/engines/kubernetes/real

# A picture of each page of the portal, of a server with pretended cards; needs Debian's chromium.
screenshots: dev
	PYTHONPATH=tests/end_to_end $(BIN)/python tests/end_to_end/portal/portal_scene.py docs/images

lint: dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: dev
	$(BIN)/mypy

imports: dev
	$(BIN)/lint-imports

check: lint types imports test test-compiled test-oldest test-long

clean: down
	rm -rf $(VENV) $(OLDEST) .millpond build dist
