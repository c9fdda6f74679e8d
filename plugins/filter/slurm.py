"""Jinja filters for the Slurm templates: thin wrappers over deepopsctl.slurm.conf."""

from __future__ import annotations

import base64
import posixpath
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import platform as node_platform
from ansible_collections.deepopsctl.cluster.plugins.plugin_utils.filters import filters_of

from deepopsctl.certificates.authority import Authority
from deepopsctl.gpus import notation
from deepopsctl.model.cluster import Role
from deepopsctl.node_programs._shared import slurm_effects
from deepopsctl.node_programs._shared.system_directories import is_system_directory
from deepopsctl.slurm import (
    billing as slurm_billing,
    conf as slurm_conf,
    failover,
    job_hooks,
    native_metrics,
    needs,
    other_files,
    package_choice,
    shapes,
    topology,
)
from deepopsctl.slurm.hardware import NodeHardware, parse_slurmd_report
from deepopsctl.text import node_sets as text_node_sets
from deepopsctl.text.problems import RefusedError


def _hardware(stored: Mapping[str, Any]) -> dict[str, NodeHardware]:
    return {name: NodeHardware.from_facts(values) for name, values in stored.items()}


def slurm_token_key(authority: object) -> dict[str, str]:
    """The key that users' tokens are signed with, as a file of node_state. Its name changes with it: daemons take a new
    one when their configuration names it."""
    key = Authority(str(authority)).token_key()
    return {
        "path": f"/etc/slurm/jwt-{sha256(key).hexdigest()[:8]}.key",
        "secret_base64": base64.b64encode(key).decode(),
        "owner": "slurm",
        "group": "slurm",
        "mode": "0400",
    }


def slurm_addresses(pairs: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """`deepops_addresses` (folded pairs) -> {name: address}, in the order of cluster.yml."""
    return dict(_addresses(tuple((str(entry["names"]), str(entry["addresses"])) for entry in pairs)))


@cache
def _addresses(pairs: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Many variables of a task ask for them, again and again."""
    addresses: dict[str, str] = {}
    for names, of_names in pairs:
        addresses.update(text_node_sets.pair(names, of_names))
    return addresses


def slurm_node_lines(
    node_sets: Sequence[Mapping[str, Any]],
    hardware: Mapping[str, Any],
    addresses: Mapping[str, str],
    reserve_percent: int,
    domains: Sequence[Mapping[str, Any]],
) -> list[str]:
    """NodeName lines of slurm.conf."""
    features = topology.feature_of(topology.domains_of(domains))
    return slurm_conf.node_lines(
        slurm_conf.parse_node_sets(node_sets), _hardware(hardware), addresses, int(reserve_percent), features
    )


def slurm_domain_refusal(domains: Sequence[Mapping[str, Any]], version: object) -> str:
    """Why this version of Slurm can't serve the NVLink domains; '' where it can."""
    return topology.refusal(topology.domains_of(domains), slurm_conf.parse_version(str(version)))


def slurm_domain_settings(domains: Sequence[Mapping[str, Any]], hardware: Mapping[str, Any]) -> dict[str, str]:
    """Keys of slurm.conf for the NVLink domains."""
    return topology.settings(topology.domains_of(domains), hardware)


def slurm_native_refusal(wanted: object, version: object, extra: Mapping[str, Any]) -> str:
    """Why Prometheus can't read slurmctld's own metrics; '' where it can, or need not."""
    return native_metrics.refusal(slurm_conf.parse_version(str(version)), extra, wanted=bool(wanted))


def slurm_native_settings(wanted: object, version: object) -> dict[str, str]:
    """Keys of slurm.conf that make slurmctld export metrics."""
    return native_metrics.settings(slurm_conf.parse_version(str(version)), wanted=bool(wanted))


def slurm_topology_lines(domains: Sequence[Mapping[str, Any]], hardware: Mapping[str, Any]) -> list[str]:
    """Lines of topology.conf; none where it is not needed."""
    return topology.topology_lines(topology.domains_of(domains), hardware)


def slurm_partition_lines(
    partitions: Sequence[Mapping[str, Any]],
    hardware: Mapping[str, Any],
    reserve_percent: int,
    node_sets: Sequence[Mapping[str, Any]],
    billing: Mapping[str, Any] | None,
) -> list[str]:
    """PartitionName lines of slurm.conf; `billing` is {} where cluster.yml has no such section."""
    units = {name: float(value) for name, value in billing["gpus"].items()} if billing else None
    return slurm_conf.partition_lines(
        partitions, _hardware(hardware), int(reserve_percent), slurm_conf.parse_node_sets(node_sets), units
    )


def slurm_usage(
    node_sets: Sequence[Mapping[str, Any]], partitions: Sequence[Mapping[str, Any]], billing: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What counts the use of accounts: RGU of all GPUs, and the partitions that have some; {} without `billing:`."""
    if not billing:
        return {}
    units = {name: float(value) for name, value in billing["gpus"].items()}
    gpus = {name: each.gpus for each in slurm_conf.parse_node_sets(node_sets) if each.gpus for name in each.names}
    return {
        "capacity": sum(slurm_billing.units_of_node(each, units) for each in gpus.values()),
        "gpu_partitions": [
            str(entry["name"])
            for entry in partitions
            if any(name in gpus for name in text_node_sets.expand(str(entry["nodes"])))
        ],
    }


def slurm_shapes(node_lines: Any, partition_lines: Any) -> str:
    """What the nodes of each partition have, as a table of job_submit.lua."""
    return shapes.lua_table(node_lines, partition_lines)


def slurm_enforced(extra: Mapping[str, Any]) -> str:
    """Whether Slurm refuses a job that no partition (`any`), or one of them (`all`), lets run; `no` for neither."""
    value = _setting_or(extra, "EnforcePartLimits", "ALL")
    return {"all": "all", "yes": "all", "true": "all", "any": "any"}.get(str(value).lower(), "no")


def slurm_needs_account(extra: Mapping[str, Any]) -> bool:
    """Whether Slurm refuses a job of a user without an account: all words but these say so."""
    value = slurm_conf.format_value(_setting_or(extra, "AccountingStorageEnforce", "associations"))
    return not set(value.lower().split(",")) <= {"", "none", "nojobs", "nosteps"}


def _setting_or(extra: Mapping[str, Any], key: str, base: str) -> object:
    """The site's value of a key, deepopsctl's own where it has none; '' where a site has removed it."""
    return slurm_conf.setting(slurm_conf.merge_settings({key: base}, extra), key, "")


def slurm_readable(text: str, version: object) -> str:
    """A file of Slurm's with names and addresses as this version reads them."""
    return slurm_conf.readable(text, slurm_conf.parse_version(str(version)))


def slurm_closed(partitions: Sequence[Mapping[str, Any]], closed: object) -> list[Mapping[str, Any]]:
    """The partitions, down where none may start a job."""
    return [
        {**entry, "options": {**(entry.get("options") or {}), "State": "DOWN"}} if closed else entry
        for entry in partitions
    ]


def slurm_jobs_on(names: Sequence[str], hostvars: Mapping[str, Any]) -> dict[str, Any]:
    """{node: ids of its jobs} of the nodes that answered `deepopsctl restore`."""
    answers = {name: hostvars[name].get("deepops_restore_jobs") or {} for name in names if name in hostvars}
    return {name: answer["jobs"] for name, answer in answers.items() if "jobs" in answer}


def slurm_gres_lines(node_sets: Sequence[Mapping[str, Any]], hardware: Mapping[str, Any]) -> list[str]:
    """Lines of gres.conf."""
    return slurm_conf.gres_lines(slurm_conf.parse_node_sets(node_sets), _hardware(hardware))


def slurm_gres_names(node_sets: Sequence[Mapping[str, Any]]) -> list[str]:
    """GresTypes of slurm.conf."""
    return slurm_conf.gres_names(slurm_conf.parse_node_sets(node_sets))


def slurm_gpu_types(node_sets: Sequence[Mapping[str, Any]]) -> list[str]:
    """Gres types of all GPUs; '' for those without a type."""
    return slurm_conf.gpu_types(slurm_conf.parse_node_sets(node_sets))


def slurm_gpus_by_node(node_sets: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """What cluster.yml declares of each node's GPUs: {name: {cards, files, sliced}}."""
    return notation.declared_by_node(node_sets)


def slurm_settings(
    base: Mapping[str, Any],
    policy: Mapping[str, Any],
    extra: Mapping[str, Any],
    directories: Any,
    adopted: object = False,
    billing: Mapping[str, Any] | None = None,
    scripted: object = False,
    addresses: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """deepopsctl's settings, cluster.yml's policy, the site's, and what features of the cluster need."""
    merged = slurm_conf.merge_settings(slurm_conf.merge_settings(base, policy), extra)
    # compute nodes get their configuration from slurmctld
    merged = slurm_conf.with_word(merged, "SlurmctldParameters", "enable_configless")
    merged = slurm_conf.with_word(merged, "PriorityFlags", "MAX_TRES") if billing else merged
    merged = job_hooks.with_job_script(merged) if scripted else merged
    merged = job_hooks.with_job_directories(merged, job_hooks.from_inventory(directories))
    merged = job_hooks.with_contain(merged) if adopted else merged
    merged = slurm_conf.with_ipv6(merged, map(str, (addresses or {}).values()))
    return {key: slurm_conf.format_value(value) for key, value in merged.items()}


def slurm_setting(extra: Mapping[str, Any], key: str, default: Any) -> object:
    """The value that `slurm_config` has for a key of slurm.conf, in whatever case it is written."""
    return slurm_conf.setting(extra, key, default)


def slurm_refused_keys(
    extra: Mapping[str, Any], directories: Any, monitored: object, adopted: object = False, shared: object = None
) -> list[str]:
    """Sentences for the keys of `slurm_config` that are not a site's to set."""
    keys = slurm_conf.owned_keys_in(extra, job_hooks.from_inventory(directories))
    keys += failover.refused_keys(extra) if shared else []
    keys += job_hooks.refused_flags(extra, "slurm_adopt_enabled") if adopted else []
    return list(dict.fromkeys([*keys, *job_hooks.refused_with_job_map(extra, monitored=bool(monitored))]))


# groups of the inventory by what Slurm runs there
_GROUPS = {"slurm_controller": Role.CONTROLLER, "slurm_compute": Role.COMPUTE, "slurm_login": Role.LOGIN}


def slurm_needs(
    extra: Mapping[str, Any],
    name: str,
    groups: Collection[str],
    node_sets: Sequence[Mapping[str, Any]],
    directories: Any,
    plugstack: Any,
    monitored: object,
    mounts: Sequence[Mapping[str, Any]],
) -> dict[str, object]:
    """What the site's settings need of a node, as drift_check and node_doctor look for it."""
    required = any(mount["required"] for mount in mounts)
    site = needs.Site(extra, job_hooks.from_inventory(directories), tuple(plugstack), bool(monitored), required)
    roles = frozenset(role for group, role in _GROUPS.items() if group in groups)
    entry = next((each for each in node_sets if name in _members(str(each["names"]))), None)
    node = slurm_conf.parse_node_sets([entry])[0] if entry else None
    mounted = [str(mount["path"]) for mount in mounts if not mount["nodes"] or name in _members(str(mount["nodes"]))]
    return needs.needs_of(site, roles, node, mounted)


@cache
def _members(names: str) -> frozenset[str]:
    """Every node asks for its own entry."""
    return frozenset(text_node_sets.expand(names))


def slurm_unmet(
    names: Sequence[str],
    hostvars: Mapping[str, Any],
    node_sets: Sequence[Mapping[str, Any]],
    hardware: Mapping[str, Any],
    extra: Mapping[str, Any],
) -> list[dict[str, object]]:
    """What nodes lack for the settings of Slurm, by their gate's answers and by hardware.yml."""
    results = {name: hostvars[name].get("drift_check_result") or {} for name in names if name in hostvars}
    answers = {name: result.get("unmet") or [] for name, result in results.items()}
    sets, stored, reported = slurm_conf.parse_node_sets(node_sets), _hardware(hardware), {}
    for name in stored.keys() & results.keys():
        report = ((hostvars[name].get("node_common_result") or {}).get("probes") or {}).get("slurmd", "")
        with suppress(ValueError):
            reported[name] = parse_slurmd_report(report, "none")
    beyond = needs.beyond_hardware(sets, stored, extra, reported)
    return [each.as_object() for each in [*needs.unmet_on(answers), *beyond]]


def slurm_refused_in_files(dbd: Any, cgroup: Any) -> list[str]:
    """Sentences for the keys of `slurm_dbd_config` and `slurm_cgroup_config` that are not a site's to set."""
    return other_files.refused_keys({"slurm_dbd_config": dbd, "slurm_cgroup_config": cgroup})


def slurm_job_map(extra: Mapping[str, Any], monitored: object) -> Mapping[str, object]:
    """`slurm_config` with deepopsctl's programs around jobs, where monitoring or a pattern needs them."""
    return job_hooks.with_job_map(extra, monitored=bool(monitored))


def slurm_generation(files: Mapping[str, str]) -> str:
    """Hash of what only a restarted slurmd picks up."""
    return slurm_effects.slurmd_generation(files["slurm.conf"], files["cgroup.conf"], files["job_container.conf"])


def slurm_job_container(directories: Any, version: object) -> str:
    """The text of job_container.conf for the Slurm that the nodes have; '' for no such file."""
    wanted = job_hooks.from_inventory(directories)
    try:
        return job_hooks.container_conf(wanted, slurm_conf.parse_version(str(version)))
    except RefusedError as refusal:
        raise AnsibleFilterError(f"job_directories: {refusal.message}: {refusal.hint}") from refusal


def slurm_site_programs(extra: Mapping[str, Any]) -> dict[str, str]:
    """{"prolog": path} of what a site has run around jobs, in `slurm_config`."""
    return job_hooks.site_programs(extra)


def slurm_cgroup_plugin(confinement: Any, version: object) -> str:
    """The plugin that cgroup.conf names; '' for none."""
    return slurm_conf.cgroup_plugin(confinement, slurm_conf.parse_version(str(version)))


def slurm_spool_directories(spool: str) -> list[dict[str, str]]:
    """What has to be there for slurmd: %n and %h are filled in by it, and it makes the last directory itself."""
    directory = posixpath.dirname(spool) if "%" in spool else spool
    return [] if "%" in spool and is_system_directory(directory) else [{"path": directory}]


def slurm_version_at_least(version: object, wanted: object) -> bool:
    """Compare `24.11.5-4` with `23.11` by Slurm's release numbering."""
    return slurm_conf.parse_version(str(version)) >= slurm_conf.parse_version(str(wanted))


def slurm_mpi_default(pmix: object, version: object) -> str:
    """MpiDefault of slurm.conf: `pmix`, so that a plain `srun` starts one MPI program; '' leaves it to Slurm.

    Before 23.11 the plugin loads its library by a name that no node has.
    """
    return "pmix" if pmix and slurm_version_at_least(version, "23.11") else ""


def slurm_probes(computes: object, check_mode: object) -> dict[str, list[str]]:
    """What a node is asked after its packages are there: {name: command}; `computes` says whether slurmd runs there."""
    probes = {"pmix": node_platform.pmix_probe()}
    if computes:
        probes["slurmd"] = ["slurmd", "-C"]
        # before slurmd is there, lscpu and the kernel predict what it will report
        probes.update({"lscpu": ["lscpu"], "meminfo": ["cat", "/proc/meminfo"]} if check_mode else {})
    return probes


def slurm_connect_addresses(names: Sequence[str], addresses: Mapping[str, str]) -> list[str]:
    """What to connect to for each name: its address, or the name where the inventory has none."""
    return [addresses.get(name) or name for name in names]


def slurm_untouched_nodes(names: Sequence[str], hostvars: Mapping[str, Any], todo: Sequence[str]) -> list[str]:
    """The nodes that answered in this run and had nothing to be done."""
    return [name for name in names if name not in todo and hostvars[name].get("drift_check_result", {}).get("clean")]


def slurm_is_reachable(controller: str, hostvars: Mapping[str, Any]) -> bool:
    """False when the controller takes part in this run and was not verified: it failed, or stopped answering."""
    host = hostvars[controller]
    return "drift_check_result" not in host or bool(slurm_verification(controller, hostvars))


def slurm_fetched_files(controller: str, hostvars: Mapping[str, Any], node: str) -> dict[str, str]:
    """{file: sha256} that slurmd must have fetched; {} where the controller was not given the new files."""
    if not slurm_verification(controller, hostvars):
        return {}
    texts = hostvars[node].get("slurm_conf_files", {})
    # only the controller has job_submit.lua
    return {name: sha256(text.encode()).hexdigest() for name, text in texts.items() if text and name.endswith(".conf")}


def slurm_verification(controller: str, hostvars: Mapping[str, Any]) -> dict[str, Any]:
    """What the verification of the controller returned in this run; {} where it failed, or did not take place."""
    result = hostvars[controller].get("slurmctld_result", {})
    steps = [] if result.get("failed") or result.get("unreachable") else result.get("results", [])
    return next((dict(step) for step in steps if "credential" in step), {})


def slurm_conf_servers(hosts: Sequence[str], port: int | str) -> list[str]:
    """What slurmd's --conf-server takes; the port only where it is not Slurm's own."""
    bare = [f"[{host}]" if ":" in host else host for host in hosts]
    return [host if int(port) == 6817 else f"{host}:{port}" for host in bare]


def _munge_key_hash(key: str) -> str:
    """SHA-256 of a munge key given in base64, as the vault has it."""
    return sha256(base64.b64decode("".join(key.split()))).hexdigest()


def slurm_foreign_nodes(names: Sequence[str], hostvars: Mapping[str, Any], cluster: str, munge_key: str) -> list[str]:
    """Sentences for the nodes on which the gate found a Slurm of another cluster; those with the same in one."""
    nodes_of_sentence: dict[str, list[str]] = {}
    key_hash = _munge_key_hash(munge_key)
    for name in names:
        sentence = _foreign(hostvars[name].get("drift_check_result", {}).get("foreign"), cluster, key_hash)
        if sentence:
            nodes_of_sentence.setdefault(sentence, []).append(name)
    return [f"{text_node_sets.fold(nodes)} {sentence}" for sentence, nodes in nodes_of_sentence.items()]


def _foreign(slurm: Mapping[str, str] | None, cluster: str, key_hash: str) -> str:
    """Why a node's Slurm is not this cluster's; '' when it is, or when there is none."""
    if not slurm:
        return ""
    if slurm["cluster"] and slurm["cluster"] != cluster.lower():
        return f"{slurm['what']} of the cluster {slurm['cluster']}, not {cluster}"
    return "" if slurm["munge_key"] == key_hash else f"{slurm['what']} with another munge key than this cluster's"


def slurm_unrestored_nodes(names: Sequence[str], hostvars: Mapping[str, Any]) -> list[str]:
    """The nodes on which a restore was begun and has not ended."""
    return [name for name in names if hostvars[name].get("drift_check_result", {}).get("restore_begun")]


def fold_nodes(names: Sequence[str]) -> str:
    """Names as a Slurm hostlist."""
    return text_node_sets.fold(list(names))


def slurm_repository(
    repositories: Any, install: object, release: object, platform: object, pyxis: bool = False
) -> dict[str, object]:
    """The repository of packages that nodes of a platform get Slurm from; empty where none is needed."""
    try:
        return package_choice.choose_repository(
            repositories, str(install), str(release), str(platform), pyxis=bool(pyxis)
        )
    except RefusedError as refusal:
        raise AnsibleFilterError(refusal.message) from refusal


def slurm_package_versions(names: Sequence[str], repository: Any) -> Sequence[str] | dict[str, str]:
    """Package names with the versions of a repository."""
    return package_choice.with_versions(names, repository)


def slurm_hop_refusal(installed: Any, repository: Any, upgrade: bool = False) -> str:
    """Why a repository's Slurm can't follow the installed one; '' where it can."""
    return package_choice.hop_refusal(installed, repository, upgrade=upgrade)


def slurm_failover_refusal(version: object) -> str:
    """Why this version of Slurm can't have several controllers; '' where it can."""
    return failover.refusal(str(version))


def slurm_plugstack_refusal(lines: Sequence[str]) -> str:
    """Why the setting slurm_plugstack can't be a plugstack.conf; '' for one that can."""
    return slurm_conf.plugstack_refusal(lines)


class FilterModule:
    """Registers the filters."""

    def filters(self) -> dict[str, Any]:
        """Name -> function."""
        return filters_of(globals())
