"""What a running Slurm's files say of policy: what a take-over keeps, and what the deploy will change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from deepopsctl.slurm.conf import OWNED_KEYS
from deepopsctl.slurm.other_files import CONFINED, OWNED, split
from deepopsctl.takeover.preflight import NodeFacts
from deepopsctl.text.answers import mapping

DBD, CGROUP = "slurm_dbd_config", "slurm_cgroup_config"
FILES = {DBD: "slurmdbd.conf", CGROUP: "cgroup.conf"}
SCRIPTED = "JobSubmitPlugins"
# in the cluster directory: Ansible would treat braces of a script in settings.yml as a template
SCRIPT = "job_submit.lua"
SCRIPT_SETTING = f"{{{{ lookup('ansible.builtin.file', deepops_cluster_dir ~ '/{SCRIPT}') }}}}"
# names of hosts, nodes and files: what they say is in cluster.yml, or follows from it
_STRUCTURE = frozenset({
    "accountingstorageport", "backupaddr", "backupcontroller", "controladdr", "controlmachine", "downnodes",
    "frontendname", "include", "nodeset", "plugstackconfig", "slurmctldaddr", "slurmctldport", "slurmdport",
    "switchname", *(key.lower() for key in OWNED_KEYS if key != "ProctrackType"),
})  # fmt: skip
_YES = frozenset({"yes", "true", "1", "up"})
# the site did not choose these: the login user of deepopsctl would have an association without limits
_ACCOUNTS = ("slurm_accounts_names", "slurm_accounts_users")


def policy(primary: NodeFacts, accounting: NodeFacts) -> dict[str, object]:
    """Settings for what decides on jobs, and for the keys of slurmdbd.conf and cgroup.conf."""
    settings: dict[str, object] = {}
    for name, facts in ((DBD, accounting), (CGROUP, primary)):
        kept, _ = _split(name, facts)
        settings |= {name: kept} if kept else {}
    plugins = _plugins(primary)
    if "lua" in plugins and primary.job_submit:
        settings["slurm_conf_job_script"] = SCRIPT_SETTING
    others = [plugin for plugin in plugins if plugin != "lua"]
    return settings | ({"slurm_config": {SCRIPTED: ",".join(others)}} if others else {})


def accounts_of(site: Mapping[str, object]) -> dict[str, object]:
    """Empty lists of accounts and users, where the site has set none."""
    return {name: [] for name in _ACCOUNTS if name not in site}


def not_kept(primary: NodeFacts, accounting: NodeFacts, settings: Mapping[str, object]) -> Iterator[str]:
    """`FILE: KEY=VALUE` of what the files set and a deploy with these settings does not."""
    known = {key.lower() for key in mapping(settings.get("slurm_config"))}
    for key, value in sorted(primary.files.get("slurm.conf", {}).items()):
        if key.lower() not in known | _STRUCTURE and not (key == SCRIPTED and _plugins(primary) == ["lua"]):
            yield f"slurm.conf: {key}={value}"
    if "lua" in _plugins(primary) and not primary.job_submit:
        yield f"slurm.conf: {SCRIPTED}=lua, whose job_submit.lua is not next to slurm.conf"
    for name, facts in ((DBD, accounting), (CGROUP, primary)):
        for key, value in sorted(_split(name, facts)[1].items()):
            if not _same(name, key.lower(), value):
                yield f"{FILES[name]}: {key}={value}"


def _split(name: str, facts: NodeFacts) -> tuple[dict[str, str], dict[str, str]]:
    """What is kept of a file, and what is not: Ansible would treat braces as a template."""
    kept, rest = split(name, facts.files.get(FILES[name], {}))
    marked = {key: value for key, value in kept.items() if any(mark in value for mark in ("{{", "{%", "{#"))}
    return {key: value for key, value in kept.items() if key not in marked}, {**rest, **marked}


def _same(name: str, key: str, value: str) -> bool:
    if name == CGROUP:
        return key in CONFINED and value.lower() in _YES
    # hosts, the database and the port are kept by settings of their own; a take-over refuses what can't be
    return key in OWNED[name] and key not in ("plugindir", "storagepassscript")


def _plugins(primary: NodeFacts) -> list[str]:
    words = primary.config.get(SCRIPTED, "").split(",")
    return [word.removeprefix("job_submit/") for word in words if word not in ("", "(null)", "none")]
