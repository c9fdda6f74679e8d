"""Gather what the nodes reported, save hardware.yml, and return the cluster's hardware to the later plays.

Runs once, on the control machine, without a connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import ansible_collections.deepopsctl.cluster.plugins.plugin_utils.package  # noqa: F401 (what comes next needs it)
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from deepopsctl.errors import DeepOpsError
from deepopsctl.gpus import discovery
from deepopsctl.slurm import conf
from deepopsctl.slurm.hardware import (
    CGROUPS,
    NodeHardware,
    estimate_hardware,
    load_hardware,
    parse_slurmd_report,
    store_hardware,
)
from deepopsctl.text import node_sets as node_names

Stored = Mapping[str, NodeHardware]


class _Answers(Mapping[str, Any]):
    """These variables of hosts; in a plan, a node that another one is checked for has that one's.

    Each host is looked up once: Ansible merges all of its variables for that, which takes 2 ms.
    """

    def __init__(
        self, hostvars: Mapping[str, Any], variables: Sequence[str], same: Mapping[str, Mapping[str, str]]
    ) -> None:
        self._hostvars, self._variables, self.same = hostvars, variables, same
        self._read: dict[str, dict[str, Any]] = {}

    def __getitem__(self, name: str) -> dict[str, Any]:
        host = self.same[name]["node"] if name in self.same else name
        if host not in self._read:
            every = self._hostvars[host]
            self._read[host] = {each: every[each] for each in self._variables if each in every}
        return self._read[host]

    def __iter__(self) -> Iterator[str]:
        return iter(self._hostvars)

    def __len__(self) -> int:
        return len(self._hostvars)

    def meminfo(self, name: str, report: str) -> str:
        """The memory of a host: its own, also where it was not checked."""
        return self.same[name]["meminfo"] if name in self.same else report


class ActionModule(ActionBase):
    """Arguments: cluster_dir, node_sets, compute and controllers (host names), confinement, packages (a register).

    With `preliminary`, nothing is kept and no warning is given: the nodes have not been asked yet.
    """

    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """See the class."""
        result = super().run(tmp, task_vars)
        arguments = self._task.args
        same = (task_vars or {}).get("deepops_same_as") or {}
        variables = (arguments["packages"], "drift_check_result", "ansible_facts")
        hostvars = _Answers((task_vars or {})["hostvars"], variables, same)
        try:
            facts, changed, warnings = self._gather(arguments, hostvars)
        except DeepOpsError as error:
            raise AnsibleActionFail(f"{error.message}: {error.hint}") from error
        entry = {"kind": "file", "name": "hardware.yml", "action": "write", "local": True}
        changes = [{**entry, "detail": "what the nodes reported"}] if changed else []
        return {**result, "changed": changed, "changes": changes, "ansible_facts": facts, "deepops_warnings": warnings}

    def _gather(self, arguments: Mapping[str, Any], hostvars: _Answers) -> tuple[dict[str, Any], bool, list[str]]:
        path = Path(arguments["cluster_dir"]) / "hardware.yml"
        stored = load_hardware(path)
        confined = arguments["confinement"] != "none"
        if confined:
            self._refuse_to_confine(stored, hostvars)
        hardware, excluded = self._hardware(arguments, hostvars, stored, confined)
        preliminary = arguments.get("preliminary", False)
        changed = not preliminary and hardware != stored
        if changed and not self._task.check_mode:
            changed = store_hardware(path, hardware)
        unknown = conf.unknown_nodes(conf.parse_node_sets(arguments["node_sets"]), hardware)
        missing = [name for name in unknown if name not in excluded]
        failed = [name for name in missing if self._cgroup(hostvars[name])]
        silent = [name for name in missing if name not in failed]
        idle = [] if arguments.get("shared_state") else arguments["controllers"][1:]
        warnings = [*excluded.values(), *self._left_out(silent, failed, idle)]
        facts = {
            "slurm_hardware": {name: values.as_facts() for name, values in hardware.items()},
            "slurm_cgroup_version": self._confinement(hardware) if confined else "none",
            "slurm_unknown_nodes": list(unknown),
            "slurm_version": self._version(arguments, hostvars),
            "slurm_pmix": self._pmix(arguments, hostvars, hardware),
        }
        return facts, changed, [] if preliminary else warnings

    def _hardware(
        self, arguments: Mapping[str, Any], hostvars: _Answers, stored: Stored, confined: bool
    ) -> tuple[dict[str, NodeHardware], dict[str, str]]:
        """The hardware of each compute node, and why a node is excluded: {name: warning}."""
        reports = {name: self._registered(hostvars, name, arguments["packages"]) for name in arguments["compute"]}
        hardware, excluded = dict(stored), {}
        for name, report in reports.items():
            cgroup = self._cgroup(hostvars[name])
            if cgroup == "none" and confined:
                # one that serves already stays as it is: it may have jobs
                if name not in stored:
                    excluded[name] = (
                        f"{name}: {self._fault(hostvars[name])}: jobs could not be confined, so it is left out"
                    )
                continue
            probes = report.get("probes", {})
            slurmd = probes.get("slurmd", "")
            if name in stored and cgroup:
                hardware[name] = replace(stored[name], cgroup=cgroup)
            elif slurmd:
                try:
                    hardware[name] = parse_slurmd_report(slurmd, cgroup or "none")
                except ValueError as error:
                    excluded[name] = f"{name}: {error}, so it is not in slurm.conf; try `slurmd -C` there"
            elif self._task.check_mode and "lscpu" in probes:
                with suppress(ValueError):
                    hardware[name] = estimate_hardware(
                        probes["lscpu"], hostvars.meminfo(name, probes.get("meminfo", "")), cgroup or "none"
                    )
            elif "slurmd" in (failed := report.get("failed_probes", {})):
                excluded[name] = f"{name}: `slurmd -C` {failed['slurmd']}, so it is not in slurm.conf; try it there"
        self._take_gpus(hardware, reports, arguments["node_sets"])
        return {name: values for name, values in hardware.items() if name in reports}, excluded

    @staticmethod
    def _left_out(silent: Sequence[str], failed: Sequence[str], idle: Sequence[str]) -> Iterator[str]:
        """Sentences: which nodes of cluster.yml do not serve yet, and why."""
        for names, why in (
            (silent, "never reached, so not in slurm.conf yet; the next deploy adds what answers"),
            (failed, "failed before `slurmd -C`, so not in slurm.conf yet; the next deploy tries again"),
            (idle, "prepared as controller but not serving: name what they share in `slurm_state` of cluster.yml"),
        ):
            if names:
                yield f"{node_names.fold(names)}: {why}"

    @staticmethod
    def _take_gpus(
        hardware: dict[str, NodeHardware], reports: Mapping[str, Any], node_sets: Sequence[Mapping[str, Any]]
    ) -> None:
        """Keep what a driver found, where it is what cluster.yml says: the end of the deploy names the others."""
        for node_set in conf.parse_node_sets(node_sets):
            for name in node_set.names if node_set.gpus else ():
                node = hardware.get(name)
                probes = reports.get(name, {}).get("probes", {})
                detected = discovery.parse_detected(probes, node.sockets, node.cores_per_socket) if node else ()
                if node and node_set.gpus and detected and discovery.fits(node_set.gpus, detected):
                    hardware[name] = replace(node, gpus=detected)

    @staticmethod
    def _cgroup(host: Mapping[str, Any]) -> str:
        """v1, v2 or none, as the gate saw it in this run; '' when the node did not answer."""
        facts = host.get("ansible_facts", {})
        if "deepops_cgroup" not in facts:
            return ""
        cgroup = facts["deepops_cgroup"] if facts.get("deepops_cgroup_writable") else "none"
        # the node's word, which a hostile one chooses
        return cgroup if cgroup in CGROUPS else "none"

    @staticmethod
    def _fault(host: Mapping[str, Any]) -> str:
        return str(host["ansible_facts"].get("deepops_cgroup_fault") or "no writable cgroup tree")

    def _refuse_to_confine(self, stored: Stored, hostvars: Mapping[str, Any]) -> None:
        """Jobs run there without confinement, which is no longer done without being asked."""
        without = [
            name
            for name, values in stored.items()
            if values.cgroup == "none" and name in hostvars and self._cgroup(hostvars[name]) == "none"
        ]
        if without:
            raise AnsibleActionFail(
                f"{node_names.fold(without)}: {self._fault(hostvars[without[0]])}: Slurm can't confine jobs to their "
                "cores, memory and devices there, and so far it does so nowhere in this cluster"
            )

    @staticmethod
    def _confinement(hardware: Stored) -> str:
        """'v1', 'v2' or 'auto' (both are met), from what is stored, so that no absent node changes it."""
        versions = {values.cgroup for values in hardware.values()} - {"none"}
        return versions.pop() if len(versions) == 1 else "auto"

    def _version(self, arguments: Mapping[str, Any], hostvars: Mapping[str, Any]) -> str:
        for name in [*arguments["controllers"], *arguments["compute"]]:
            packages = self._registered(hostvars, name, arguments["packages"]).get("packages", {})
            for package in ("slurmctld", "slurmd"):
                if packages.get(package):
                    return str(packages[package])
        return ""

    def _pmix(self, arguments: Mapping[str, Any], hostvars: Mapping[str, Any], hardware: Mapping[str, Any]) -> bool:
        """Whether `srun` may start MPI programs by PMIx: on every node that is known, a controller among them."""
        has = {name: self._has_pmix(arguments, hostvars, name) for name in [*arguments["controllers"], *hardware]}
        return any(has[name] for name in arguments["controllers"]) and False not in has.values()

    def _has_pmix(self, arguments: Mapping[str, Any], hostvars: Mapping[str, Any], name: str) -> bool | None:
        """None where unknown: what the gate saw counts only where nothing had to be done, as it came first."""
        report = self._registered(hostvars, name, arguments["packages"])
        if "pmix" in report.get("probes", {}) or "pmix" in report.get("failed_probes", {}):
            return "pmix" in report["probes"]
        clean = self._registered(hostvars, name, "drift_check_result").get("clean")
        return hostvars[name].get("ansible_facts", {}).get("deepops_pmix") if clean else None

    @staticmethod
    def _registered(hostvars: Mapping[str, Any], name: str, variable: str) -> dict[str, Any]:
        value = hostvars[name].get(variable, {})
        return value if isinstance(value, dict) else {}
