# deepopsctl: `make quickstart` shows it, `make test` verifies it, `make bench` measures it.
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
# where the lowest allowed versions are installed
LOWEST := .cache/lowest
LAB ?= quickstart
CLUSTER ?= lab-cluster
SCENARIO ?= default
OS ?= debian13
IMAGE ?= localhost/deepopsctl
# where codespell looks for words that are not used here
WORDS := deepopsctl plugins roles playbooks group_vars inventory molecule scripts benchmarks docs README.md CONTRIBUTING.md SECURITY.md Makefile
# their names have no ending by which linters would find them
PYTHON_SCRIPTS = $$(grep -slE '^\#!.*python3$$' scripts/*)
SHELL_SCRIPTS = $$(grep -slE '^\#!.*(/|env )(ba)?sh$$' .ci/run scripts/*)
# a shell that forbids them has every program compiled at every start: a tenth of what the tests cost
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help lock lowest release tools tools-test tools-vm box vms vms-down vm-daemons-down venv quickstart quickstart-down test test-all molecule lint sanity types docs site unit dist image mutation qemu test-vm test-vm-down bench bench-monitoring clean

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

tools: ## Install the Debian packages that the lab and the tests need (asks for sudo when not root)
	@scripts/install-tools

tools-test: ## Install what tests without a lab need: programs, Prometheus and what comes with it, sshd; no service is started
	@scripts/install-tools-test

# the packages of a lock file by their hashes, then this checkout, which needs no others
define install
@test -d $(VENV) || python3 -m venv $(VENV)
@echo "installing deepopsctl and the packages of $(1) into $(VENV) ..."
@$(PIP) install --require-hashes --requirement $(1)
@$(PIP) install --no-deps --no-build-isolation --editable .
endef

# all that quickstart needs: a developer's tools are more than half of it
$(VENV)/.runtime: pyproject.toml requirements.lock
	$(call install,requirements.lock)
	@touch $@

$(VENV)/.installed: pyproject.toml requirements-dev.lock
	$(call install,requirements-dev.lock)
	@touch $(VENV)/.runtime $@

venv: $(VENV)/.installed ## Make the virtual environment

lock: venv ## Renew requirements.lock and requirements-dev.lock: the newest versions that pyproject.toml allows
	$(BIN)/python scripts/lock --upgrade

quickstart: ## From nothing to a validated Slurm cluster of containers on this machine
	@scripts/quickstart --announce "$(VENV)"
	@$(MAKE) --no-print-directory tools $(VENV)/.runtime
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/quickstart "$(LAB)" "$(CLUSTER)"

quickstart-down: ## Remove the lab and cluster directory of quickstart (LAB, CLUSTER)
	@$(BIN)/deepopsctl lab down --name "$(LAB)"
	@rm -rf "$(CLUSTER)"

dist: venv ## Wheel and collection of this checkout, in dist/
	@rm -rf dist
	@$(BIN)/python -m build --wheel --no-isolation --outdir dist . >/dev/null
	@$(BIN)/ansible-galaxy collection build --output-path dist

image: dist ## The container image of deepopsctl (docs/operate/execution-environment.md): IMAGE, IMAGE_OPTIONS
	@podman build --file containers/Containerfile --tag "$(IMAGE)" $(IMAGE_OPTIONS) .

tools-vm: ## Install what virtual machines need (Vagrant, libvirt, QEMU) and see that libvirt runs
	@scripts/install-tools-vm

box: tools-vm venv ## Build the box that virtual machines are made from: OS=debian13 or debian12
	@scripts/make-box $(OS)

vms: venv ## Virtual machines by Vagrant, ready for a deploy (docs/develop/virtual-machines.md)
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/vms up

vms-down: ## Remove the virtual machines that `make vms` made
	@scripts/vms down

vm-daemons-down: ## End libvirt's daemons if `make tools-vm` started them without systemd, with their networks
	@scripts/vm-daemons down

molecule: tools venv ## One of Molecule's scenarios, whole: SCENARIO=default, monitored, single-machine, roles or vagrant
	@PATH="$(CURDIR)/$(BIN):$$PATH" molecule test --scenario-name "$(SCENARIO)"

lint: venv ## ruff, codespell, shellcheck, import-linter and ansible-lint
	$(BIN)/ruff format --check . $(PYTHON_SCRIPTS)
	$(BIN)/ruff check . $(PYTHON_SCRIPTS)
	$(BIN)/codespell -D - -D .codespell-words.txt $(WORDS)
	$(BIN)/shellcheck $(SHELL_SCRIPTS)
	$(BIN)/lint-imports
	PATH="$(CURDIR)/$(BIN):$$PATH" scripts/lint-ansible --offline

sanity: venv ## Ansible's own checks of the collection (ansible-test)
	PATH="$(CURDIR)/$(BIN):$$PATH" scripts/ansible-sanity

types: venv ## mypy, strict, also for the collection and the tests
	$(BIN)/mypy

docs: venv ## The documentation as a site in site/; a link that leads nowhere is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

site: venv ## Every page in a browser: what axe-core calls serious, light and dark; cut commands; a telephone's width
	@DEEPOPSCTL_TOOLS="chromium chromium-driver npm" scripts/install-tools
	NO_MKDOCS_2_WARNING=1 $(BIN)/python scripts/check-site

unit: tools-test venv ## The tests that need no lab and no virtual machine
	$(BIN)/pytest -m "not lab and not vm and not qemu" tests

lowest: tools-test venv ## tests/unit with the lowest versions that pyproject.toml allows
	@mkdir -p $(LOWEST)
	$(BIN)/uv pip compile --quiet --resolution lowest-direct --extra test pyproject.toml --output-file $(LOWEST)/requirements.txt
	$(BIN)/uv venv --quiet --clear --seed --python $(BIN)/python $(LOWEST)/venv
	$(BIN)/uv pip install --quiet --python $(LOWEST)/venv --requirements $(LOWEST)/requirements.txt
	$(BIN)/uv pip install --quiet --python $(LOWEST)/venv --no-deps --editable .
	$(LOWEST)/venv/bin/pytest -p no:cacheprovider tests/unit

mutation: tools-test venv ## Break each guard of tests/guards.toml in a copy: a test has to notice
	@$(BIN)/python scripts/mutate-guards

test: tools tools-test venv ## What gates every change: lint, types, docs, unit and integration tests, a cluster's whole life
	$(BIN)/python scripts/run-tests

test-all: tools tools-test venv ## Every suite, hours; SUITES="cuda mig" for some. It writes the table of docs/testing.md
	$(BIN)/python scripts/run-tests --all $(SUITES)

qemu: tools-vm venv ## Tests on one virtual machine in plain QEMU
	$(BIN)/pytest -m qemu tests/vm

test-vm: venv box ## Tests on virtual machines: two to three hours; STAGES="deploy reboot" for some, KEEP=1, OS=debian12
	@KEEP="$(KEEP)" scripts/test-vm $(OS) $(STAGES)

test-vm-down: venv ## Remove what test-vm KEEP=1 kept
	@scripts/test-vm $(OS) down

bench: tools venv ## Deploy times against a bare parallel-ssh floor, the time of node add, a slow uplink, questions to played nodes, slurmctld with 10,000
	$(BIN)/python -m benchmarks.deploy
	$(BIN)/python -m benchmarks.node_add
	$(BIN)/python -m benchmarks.uplink
	$(BIN)/python -m benchmarks.played_nodes
	$(BIN)/python -m benchmarks.large_slurm
	$(BIN)/python -m benchmarks.many_slurmd

bench-monitoring: tools venv ## What monitoring costs a compute node, and a Prometheus of 1,000 simulated nodes
	$(BIN)/python -m benchmarks.monitoring_node
	$(BIN)/python -m benchmarks.monitoring_targets

release: venv ## Build the wheel, the sdist and the collection of the last commit, and try them in clean environments
	$(BIN)/python scripts/release

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) $(LOWEST) .mypy_cache .ruff_cache .pytest_cache dist
