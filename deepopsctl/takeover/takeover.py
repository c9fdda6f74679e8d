"""`deepopsctl takeover`: what to keep of a running Slurm, checked and written into the cluster directory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.secrets import change, read
from deepopsctl.cluster.settings import site_values
from deepopsctl.errors import InputError, Problem
from deepopsctl.files import write_atomic
from deepopsctl.model.cluster import Cluster, Node, Role
from deepopsctl.model.json_objects import TakeoverObject
from deepopsctl.slurm.conf import RESERVE_PERCENT, parse_version
from deepopsctl.slurm.hardware import NodeHardware, load_hardware, parse_slurmd_report, store_hardware
from deepopsctl.takeover.plugins import plugstack
from deepopsctl.takeover.policy import SCRIPT, accounts_of, not_kept, policy
from deepopsctl.takeover.preflight import NodeFacts, database_server, find_problems, storage_parameters
from deepopsctl.text.answers import mapping
from deepopsctl.text.node_sets import fold
from deepopsctl.text.yaml_editor import with_settings

PLAYBOOK, END_PLAYBOOK = "operate/takeover/takeover", "operate/takeover/takeover-end"
SOURCE_PREFIX = "slurm_source_prefix"

# Running jobs depend on these: where they are, how their resources are counted, how their steps report.
KEPT = (
    "StateSaveLocation", "SlurmdSpoolDir", "SelectType", "SelectTypeParameters", "JobAcctGatherType",
    "AccountingStorageEnforce",
)  # fmt: skip
PORTS = {"SlurmctldPort": "6817", "SlurmdPort": "6818", "AccountingStoragePort": "6819"}
NOTHING = frozenset({"", "none", "(null)", "N/A"})


@dataclass(frozen=True, slots=True)
class Takeover:
    """What is kept: files of the cluster directory, and messages."""

    settings: Mapping[str, object]
    hardware: Mapping[str, NodeHardware]
    facts: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    secrets: Mapping[str, str] = field(repr=False)
    # `FILE: KEY=VALUE` of the running Slurm, which deploy changes
    not_kept: tuple[str, ...] = ()
    # the text of job_submit.lua, for the cluster directory
    script: str = ""

    def document(self, *, written: bool) -> TakeoverObject:
        """The JSON object; secrets are listed, not shown."""
        return {
            "schema": 1,
            "command": "takeover",
            "ok": True,
            "written": written,
            "settings": dict(self.settings),
            "secrets": sorted(self.secrets),
            "nodes": sorted(self.hardware),
            "warnings": list(self.warnings),
            "not_kept": list(self.not_kept),
        }


def plan_takeover(
    cluster: Cluster,
    facts: Mapping[str, NodeFacts],
    stored_munge_key: str = "",
    site: Mapping[str, object] = MappingProxyType({}),
) -> Takeover:
    """What will be adopted; raises an InputError with all problems that prevent it. `site` is what settings.yml has.

    A Slurm of deepopsctl's own is adopted if the vault has another munge key: its cluster directory was lost.
    """
    controller = cluster.controllers[0].name
    primary = facts.get(controller, NodeFacts())
    lost = primary.deployed and stored_munge_key not in ("", primary.secrets.get("munge_key"))
    problems = [Problem(*fault) for fault in find_problems(cluster, controller, primary, facts, directory_lost=lost)]
    if problems:
        raise InputError(problems)
    dbd = cluster.with_role(Role.DBD)[0]
    accounting = facts.get(dbd.name, NodeFacts())
    server = database_server(dbd, accounting)
    lines, plugin_warnings = plugstack(cluster, facts)
    # deepopsctl's own values are its defaults, and what a site had set is compared by `deploy --check --diff`
    own = {} if lost else merged(_settings(primary, accounting), policy(primary, accounting))
    accounts = {} if lost else accounts_of(site)
    return Takeover(
        settings={
            **own,
            **accounts,
            **_server_settings(server, accounting),
            **({"slurm_plugstack": lines} if lines else {}),
        },
        secrets=_secrets(primary, accounting),
        hardware=_hardware(cluster, primary, facts),
        facts=tuple(_facts(primary, accounting, facts, server)),
        warnings=(*_warnings(cluster, primary, facts), *plugin_warnings, *_account_warnings(accounts)),
        script=primary.job_submit if "slurm_conf_job_script" in own else "",
        not_kept=() if lost else tuple(not_kept(primary, accounting, merged(site, own))),
    )


def merged(first: Mapping[str, object], second: Mapping[str, object]) -> dict[str, object]:
    """Settings with the keys of both in slurm_config."""
    config = {**mapping(first.get("slurm_config")), **mapping(second.get("slurm_config"))}
    return {**first, **second, **({"slurm_config": config} if config else {})}


def _account_warnings(accounts: Mapping[str, object]) -> Iterator[str]:
    if accounts:
        yield (
            "no account and no user is added to the accounting (slurm_accounts_names, slurm_accounts_users): where it "
            "is enforced, `validate` needs an account for the login user, by sacctmgr with the limits that you choose"
        )


def apply(directory: ClusterDir, takeover: Takeover) -> tuple[str, ...]:
    """Write it; returns the names of the files that changed."""
    changed = []
    script = directory.path / SCRIPT
    if takeover.script and script.exists() and script.read_text(encoding="utf-8") != takeover.script:
        message = "is in the cluster directory already, and is not the controller's"
        raise InputError.single(SCRIPT, message, "move it away, then run `takeover` again: nothing was written")
    text = directory.settings_text()
    settings = with_settings(text, takeover.settings, str(directory.settings))
    known = read(directory.secrets, directory.vault_password)
    if {**known, **takeover.secrets} != known:
        # secrets first: settings without their key would be half a takeover
        change(directory.secrets, directory.vault_password, takeover.secrets)
        changed.append(directory.secrets.name)
    if takeover.script and not script.exists():
        write_atomic(script, takeover.script)
        changed.append(SCRIPT)
    if settings != text:
        write_atomic(directory.settings, settings)
        changed.append(directory.settings.name)
    if store_hardware(directory.hardware, {**load_hardware(directory.hardware), **takeover.hardware}):
        changed.append(directory.hardware.name)
    return tuple(changed)


def source_prefix(directory: ClusterDir) -> str:
    """Where the Slurm that was taken over was built; an InputError where none was."""
    prefix = site_values(directory).get(SOURCE_PREFIX)
    if not prefix:
        raise InputError.single(
            directory.settings.name,
            "no Slurm that was built from source has been taken over",
            "there is nothing to finish or undo",
        )
    return str(prefix)


def require_taken_over(directory: ClusterDir) -> None:
    """An InputError where no Slurm was taken over."""
    if not site_values(directory).get("slurm_taken_over"):
        raise InputError.single(directory.settings.name, "no Slurm has been taken over", "there is nothing to undo")


def forget_source(directory: ClusterDir) -> None:
    """Nothing of what was built is there any more."""
    text = directory.settings_text()
    write_atomic(directory.settings, with_settings(text, {SOURCE_PREFIX: ""}, str(directory.settings)))


def _settings(primary: NodeFacts, accounting: NodeFacts) -> dict[str, object]:
    config = primary.config
    slurm_config: dict[str, object] = {key: _value(config.get(key, "")) for key in KEPT}
    slurm_config |= {key: config[key] for key, usual in PORTS.items() if config.get(key, usual) != usual}
    settings: dict[str, object] = {"slurm_taken_over": True, "slurm_config": slurm_config}
    if primary.build:
        settings[SOURCE_PREFIX] = primary.build["prefix"]
    user, group = primary.ids.get("slurm", [0, 0])
    if user:
        settings |= {"slurm_user_id": user, "slurm_group_id": group}
    database = accounting.database
    if database.get("storageloc"):
        settings["slurm_dbd_database"] = database["storageloc"]
    if database.get("storageuser"):
        settings["slurm_dbd_user"] = database["storageuser"]
    return settings


def _server_settings(server: str, accounting: NodeFacts) -> dict[str, object]:
    """A database of another host stays there."""
    if not server:
        return {}
    settings: dict[str, object] = {"slurm_dbd_server": server}
    port, ca = accounting.database.get("storageport", ""), storage_parameters(accounting).get("SSL_CA", "")
    settings |= {"slurm_dbd_server_port": int(port)} if port.isdigit() else {}
    return settings | ({"slurm_dbd_server_ca": ca} if ca else {})


def _value(text: str) -> str | None:
    return None if text in NOTHING else text


def _secrets(primary: NodeFacts, accounting: NodeFacts) -> dict[str, str]:
    secrets = {"munge_key": primary.secrets.get("munge_key", "")}
    if accounting.secrets.get("slurm_dbd_password"):
        secrets["slurm_dbd_password"] = accounting.secrets["slurm_dbd_password"]
    return secrets


def _hardware(cluster: Cluster, primary: NodeFacts, facts: Mapping[str, NodeFacts]) -> dict[str, NodeHardware]:
    """The nodes' hardware as slurmctld has it: with other numbers of cores it would end the jobs there."""
    counted = {}
    for node in cluster.compute:
        live = primary.nodes.get(node.name)
        if live:
            numbers = {name: max(1, int(str(live[name]))) for name in _NUMBERS}
            memory = _all_memory(numbers["memory_mb"], facts.get(node.name, NodeFacts()))
            counted[node.name] = NodeHardware(
                numbers["cpus"],
                numbers["boards"],
                numbers["sockets"],
                numbers["cores_per_socket"],
                numbers["threads_per_core"],
                memory,
            )
    return counted


_NUMBERS = ("cpus", "boards", "sockets", "cores_per_socket", "threads_per_core", "memory_mb")


def _all_memory(counted: int, node: NodeFacts) -> int:
    """The memory whose share for jobs is slurmctld's value; the node's own if slurm.conf did not set it."""
    if counted > 1:
        return -(-counted * 100 // (100 - RESERVE_PERCENT))
    try:
        return parse_slurmd_report(node.slurmd_report, "none").memory_mb
    except ValueError:
        return counted


def _facts(
    primary: NodeFacts, accounting: NodeFacts, facts: Mapping[str, NodeFacts], server: str
) -> Iterator[tuple[str, str]]:
    config, running = primary.config, [name for name, node in facts.items() if node.daemons]
    version = ".".join(f"{part:02d}" for part in parse_version(f"slurm {config.get('SLURM_VERSION', '')}"))
    yield "cluster", f"{config.get('ClusterName', '')}, Slurm {config.get('SLURM_VERSION', version)}"
    if primary.build:
        build = primary.build
        yield (
            "built",
            f"from source in {build['prefix']}; packages {build['target']} follow it, it stays until --finish",
        )
    yield "jobs", f"{primary.jobs} running; they continue"
    yield "munge key", f"the same on {fold(running)} (SHA-256 {primary.munge_key_hash[:12]}...)"
    if "slurm" in primary.ids:
        yield "user slurm", f"id {primary.ids['slurm'][0]}, group {primary.ids['slurm'][1]}"
    plugins = sorted({str(plugin["path"]) for node in facts.values() for plugin in node.spank})
    if plugins:
        yield "plugins of jobs", f"{', '.join(plugins)}: stay where they are, also after --finish"
    for key in KEPT:
        yield key, _value(config.get(key, "")) or "none"
    database = accounting.database
    if database.get("storageloc") or database.get("storageuser"):
        yield (
            "accounting",
            f"database {database.get('storageloc', 'slurm_acct_db')}, user {database.get('storageuser')}"
            + (f", on {server}" if server else ""),
        )
    else:
        yield "accounting", "no slurmdbd so far: deploy adds one"


def _warnings(cluster: Cluster, primary: NodeFacts, facts: Mapping[str, NodeFacts]) -> Iterator[str]:
    names = {node.name for node in cluster.compute}
    gone = sorted(set(primary.nodes) - names)
    if gone:
        yield f"{fold(gone)}: not in cluster.yml; deploy removes them from the cluster, or refuses while jobs run there"
    new = sorted(names - set(primary.nodes))
    if new:
        yield f"{fold(new)}: not in the running cluster; deploy adds them"
    silent = sorted(_names(cluster.nodes) - set(facts))
    if silent:
        yield f"{fold(silent)}: did not answer, so their keys and ids were not compared"
    others = {name for node in facts.values() for name in node.other_files}
    if "job_container.conf" in others:
        yield "job_container.conf: new jobs have private directories only with job_directories in cluster.yml"
    if "oci.conf" in others:
        yield "oci.conf: replaced where environment_containers has oci, with keys of slurm_conf_oci; else it stays"
    unsupported = sorted(others - {"job_container.conf", "oci.conf"})
    if unsupported:
        yield f"{', '.join(unsupported)}: deepopsctl has no such settings; kept alongside the new files on the nodes"
    packaged = [node for node in facts.values() if not node.build]
    made = sorted({path for node in packaged for path in node.units.values() if path.startswith("/etc/systemd/")})
    if made:
        yield f"{', '.join(made)}: manually created units override the packages' units: compare them before you deploy"


def _names(nodes: Iterable[Node]) -> set[str]:
    return {node.name for node in nodes}
