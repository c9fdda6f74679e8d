#!/usr/bin/python
"""Software of network file systems that belongs to the running kernel: what fits it, and that both stay together."""

from __future__ import annotations

DOCUMENTATION = r"""
module: storage_client
short_description: Match the clients of Lustre and BeeGFS with the running kernel
description:
  - With I(phase=prepare), says which packages a node needs for its clients. Refuses a kernel that no module is made for
    or can be compiled for. Sets up the source of the packages, and releases the holds of those that will change.
  - A client whose packages can't be fetched is left out; what the node has of it stays as it is.
  - With I(phase=hold), which comes after their installation, holds the packages and the kernel together, and refuses
    a kernel that the module is missing for.
  - With I(phase=verify), which comes after the mounts, runs commands that only look, and warns of those that fail.
  - What an earlier call set up for a client that is not wanted any more is removed.
extends_documentation_fragment: deepopsctl.cluster.recorded
options:
  phase:
    description: Before the packages are installed, after it, or after the mounts.
    type: str
    required: true
    choices: [prepare, hold, verify]
  checks: {description: "For I(phase=verify), commands by the name of the storage.", type: dict, default: {}}
  clients:
    description: The clients that the node needs.
    type: list
    elements: dict
    default: []
    suboptions:
      name: {description: "C(lustre) or C(beegfs).", type: str, required: true}
      version: {description: "Release that the packages are of; C(8.3) is any 8.3.x.", type: str, required: true}
      packages: {description: Their names., type: list, elements: str, required: true}
      modules: {description: Kernel modules that they contain., type: list, elements: str, default: []}
      builds: {description: Whether those are compiled on the node., type: bool, default: true}
      repository: {description: "Its C(url), C(suite), C(components), C(key) and C(fingerprint).", type: dict}
      archives: {description: "Packages by C(url), each with its C(sha256).", type: list, elements: dict, default: []}
  left_out: {description: "For I(phase=hold), what I(phase=prepare) left out.", type: list, elements: str, default: []}
  lock_wait: {description: Seconds to wait for another package manager on the node., type: int, default: 300}
author: deepopsctl (@deepopsctl)
"""

EXAMPLES = r"""
- name: Packages of the client that fit the running kernel
  deepopsctl.cluster.storage_client:
    component: storage
    step: client_ready
    phase: prepare
    clients:
      - name: lustre
        version: 2.17.0
        packages: [lustre-client-modules-dkms, lustre-client-utils]
        modules: [lustre]
        archives:
          - {url: "https://mirror.example.com/lustre-client-utils_2.17.0-1_amd64.deb", sha256: "..."}
"""

RETURN = r"""
changes: {description: What was done., type: list, elements: dict, returned: always}
deepops_left_out:
  description: Why the packages of clients can't be fetched, C(message) and C(hint).
  type: dict
  returned: when they can't be
left_out: {description: The clients that were left out., type: list, elements: str, returned: always}
missing: {description: Those of them that the node does not have., type: list, elements: str, returned: always}
packages: {description: What the node needs installed; each with its version., type: dict, returned: always}
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    command,
    errors as node_errors,
    kernel as node_kernel,
    ownership as node_ownership,
    packages as node_packages,
    packages_sources as node_package_sources,
    record as node_record,
    step as node_step,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.storage import client_sources as storage_client_sources

KNOWN = ("lustre", "beegfs")
# the record of managed holds: apart from the two steps
HOLDS = "client_holds"
# a server that has not answered by then is worth a word
ANSWER_S = 60


class Step(node_step.Step):
    """One call."""

    def __init__(self, module: AnsibleModule) -> None:
        super().__init__(module)
        self.clients = [each for each in module.params["clients"] if each["name"] not in module.params["left_out"]]
        # errors by client
        self.left_out: dict[str, node_errors.HintedError] = {}
        self.missing: list[str] = []
        self.release = node_kernel.running()

    def managed_packages(self) -> list[str]:
        return node_ownership.load(self.wanted["component"], HOLDS)["packages"]

    def remember(self, names: Iterable[str]) -> None:
        if not self.dry:
            node_ownership.save(self.wanted["component"], HOLDS, {"packages": sorted(names), "files": []})


def prepare(step: Step) -> dict[str, str]:
    """Everything that comes before the installation; returns the packages with their versions."""
    component, name = step.wanted["component"], step.wanted["step"]
    if step.clients and not step.dry and not node_record.load(component, name):
        # a run that is cut off from here on leaves something behind, which the next one must know of
        node_record.begin(component, name)
    for client in step.clients:
        if client["builds"]:
            node_kernel.check_headers(label(client), step.release)
    for name in KNOWN:
        client = next((client for client in step.clients if client["name"] == name), None)
        ensure_source(step, name, client)
    packages = {}
    for client in step.clients:
        if client["name"] in step.left_out:
            packages.update(present_of(step, client))
        else:
            packages.update(choose_versions(step, client))
    release(step, packages)
    headers = node_kernel.headers_package(step.release)
    # a kernel of the site's own has its headers, and no package of that name
    needed = not node_kernel.has_headers(step.release) or node_packages.installed([headers])
    if needed and any(client["builds"] for client in step.clients):
        packages[headers] = ""
    return packages


def ensure_source(step: Step, name: str, client: Mapping[str, Any] | None) -> None:
    """Where a client's packages come from; one that can't be used leaves the client out."""
    repository, archives = (client["repository"], client["archives"]) if client else (None, [])
    before = len(step.noted.changes)
    try:
        storage_client_sources.ensure(step.noted, name, repository, archives, step.wanted["lock_wait"])
    except (node_package_sources.SourceError, storage_client_sources.ArchiveError) as error:
        step.left_out[name] = error
        # it was put back
        del step.noted.changes[before:]


def present_of(step: Step, client: Mapping[str, Any]) -> dict[str, str]:
    """{package: version} of a client that is left out: what the node has."""
    present = node_packages.installed(client["packages"])
    if len(present) < len(client["packages"]):
        step.missing.append(client["name"])
    return present


def report_left_out(step: Step) -> dict[str, Any]:
    """The run continues without these clients, and ends with a failure all the same."""
    labels = {client["name"]: label(client) for client in step.clients}
    messages = [f"{labels[name]} is left out: {error}" for name, error in step.left_out.items()]
    if not messages:
        return {}
    step.module.warn("; ".join(messages))
    hints = dict.fromkeys(error.hint for error in step.left_out.values())
    return {"deepops_left_out": {"message": "; ".join(messages), "hint": "; ".join(hints)}}


def label(client: Mapping[str, Any]) -> str:
    return f"{client['name']} {client['version']}"


def choose_versions(step: Step, client: Mapping[str, Any]) -> dict[str, str]:
    """{package: version} of one client; fails where the sources do not have them."""
    available = node_packages.versions(client["packages"])
    versions = {
        name: storage_client_sources.choose(available.get(name, []), client["version"]) for name in client["packages"]
    }
    missing = [name for name, version in versions.items() if not version]
    if not missing or (step.dry and not storage_client_sources.paths(client["name"])):
        # a plan comes before the source
        return versions
    raise node_kernel.KernelError(*why_missing(step, client, missing[0], available.get(missing[0], [])))


def why_missing(step: Step, client: Mapping[str, Any], name: str, versions: Sequence[str]) -> tuple[str, str]:
    if versions:
        words = f"{label(client)}: the package sources have {name} of another version"
        return words, f"they have {' '.join(versions)}: write that version in cluster.yml, or add it to the source"
    if name.endswith("-" + step.release):
        prefix = name[: -len(step.release)]
        releases = [other[len(prefix) :] for other in node_packages.known(prefix)]
        others = [release for release in releases if release[:1].isdigit()]
        words = f"{label(client)}: there is no {name} for the running kernel"
        made = f"it was made for {' '.join(others)}" if others else "it was made for no kernel"
        return words, f"{made}: reboot the drained node into one of them, or make it for this one"
    return f"{label(client)}: no package source has {name}", "see what the source of the entry in cluster.yml has"


def release(step: Step, packages: Mapping[str, str]) -> None:
    """Unhold managed packages that will be changed or removed; the second call holds them again."""
    managed = step.managed_packages()
    present = node_packages.installed(managed)
    stays = [name for name in packages if present.get(name) and packages[name] in ("", present[name])]
    kernel = node_kernel.installed() if step.clients else []
    # of a client that is left out stays also what its other packages would replace
    retained = [name for name in managed if step.left_out and name not in packages]
    changing = [name for name in managed if name not in stays + kernel + retained]
    held = [name for name in changing if name in node_packages.held()]
    for name in held:
        step.noted.did("hold", name, "release")
    if held and not step.dry:
        node_packages.mark("unhold", held)
    step.remember([name for name in managed if name not in changing])


def hold_together(step: Step) -> list[str]:
    """Everything that comes after the installation; returns what is held."""
    names = [name for client in step.clients for name in client["packages"]]
    present = node_packages.installed(names)
    kernel = node_kernel.installed() if step.clients else []
    wanted = sorted(names if step.dry else present) + kernel
    held = node_packages.held()
    free = [name for name in wanted if name not in held]
    # before it happens, so that a cut-off run leaves no hold without a record
    step.remember(set(step.managed_packages()) | set(free))
    for name in free:
        step.noted.did("hold", name, "hold")
    if free and not step.dry:
        node_packages.mark("hold", free)
    for client in step.clients if not step.dry else []:
        for name in client["modules"]:
            node_kernel.check_module(label(client), name, step.release)
            warn_of_another(step, client, name)
    return wanted


def warn_of_another(step: Step, client: Mapping[str, Any], name: str) -> None:
    """A module that runs stays until the reboot, whatever was installed since."""
    path = f"/sys/module/{name}/version"
    if not os.path.exists(path):
        return
    with open(path) as stream:
        loaded = stream.read().strip()
    available = node_packages.output(["modinfo", "-k", step.release, "-F", "version", name]).strip()
    if available and loaded != available:
        running = f"the kernel runs module {name} of version {loaded}"
        step.module.warn(f"{label(client)}: {running}, and {available} is installed: reboot the drained node")


def run_checks(step: Step) -> None:
    """Warn of each command that says that a server does not answer."""
    for name, commands in step.wanted["checks"].items():
        for argv in commands:
            problem = error_of(argv)
            if problem:
                step.module.warn(f"storage {name}: `{' '.join(argv)}` fails: {problem}")


def error_of(argv: Sequence[str]) -> str:
    """What a command says that fails; '' for one that does not."""
    result = command.run_merged(argv, ANSWER_S)
    return "" if result.ok else result.message[-300:] or "it does not say why"


def save(step: Step, held: Sequence[str]) -> None:
    """What the gate compares: packages and holds, the sources, and the kernel that all of it was made for."""
    if step.wanted["left_out"]:
        # the next deploy tries again, or removes what is there
        node_record.begin(step.wanted["component"], step.wanted["step"])
        return
    names = [name for client in step.clients for name in client["packages"]]
    files = [path for client in step.clients for path in storage_client_sources.paths(client["name"])]
    files += ["/proc/sys/kernel/osrelease"] if step.clients else []
    items = dict(node_record.items(node_packages.installed(names), files), held=sorted(held))
    # without clients there is nothing to compare, and nothing to remove
    digest = step.wanted["digest"] if step.clients else ""
    node_record.save(step.wanted["component"], step.wanted["step"], digest, items)


def main() -> None:
    client = {
        "name": {"required": True},
        "version": {"required": True},
        "packages": {"type": "list", "elements": "str", "required": True},
        "modules": {"type": "list", "elements": "str", "default": []},
        "builds": {"type": "bool", "default": True},
        "repository": {"type": "dict"},
        "archives": {"type": "list", "elements": "dict", "default": []},
    }
    module = AnsibleModule(
        argument_spec={
            **node_record.STEP,
            "phase": {"required": True, "choices": ["prepare", "hold", "verify"]},
            "checks": {"type": "dict", "default": {}},
            "clients": {"type": "list", "elements": "dict", "default": [], "options": client},
            "left_out": {"type": "list", "elements": "str", "default": []},
            "lock_wait": {"type": "int", "default": 300},
        },
        supports_check_mode=True,
    )
    os.umask(0o022)
    step = Step(module)
    packages = {}
    with node_errors.fail_on_error(module.fail_json):
        if module.params["phase"] == "prepare":
            packages = prepare(step)
        elif module.params["phase"] == "verify":
            run_checks(step)
        else:
            held = hold_together(step)
            if not module.check_mode:
                save(step, held)
    noted = step.noted
    module.exit_json(
        **noted.result(packages=packages, left_out=sorted(step.left_out), missing=step.missing),
        **report_left_out(step),
    )


if __name__ == "__main__":
    main()
