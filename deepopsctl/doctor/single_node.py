"""Checks of a single node: whether it answers, software, configuration, hardware against the cluster directory."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict

from deepopsctl.checks.check import Check
from deepopsctl.doctor.advisories import AS_OF, MUNGE, SLURM, is_a_version, open_ones
from deepopsctl.doctor.check_builders import Declared, failed, passed, skipped, warned
from deepopsctl.doctor.facts import NodeFacts
from deepopsctl.gpus.models import may_be
from deepopsctl.model.cluster import Role
from deepopsctl.node_programs._shared import room
from deepopsctl.run.hints import hint_for
from deepopsctl.run.outcome import Failure
from deepopsctl.slurm.conf import NodeSet
from deepopsctl.slurm.needs import beyond_hardware
from deepopsctl.slurm.releases import release_of
from deepopsctl.text.answers import items

EXPECTED_PROGRAMS = {
    "slurmctld": {"slurmctld"},
    "slurmd": {"slurmd"},
    "slurmdbd": {"slurmdbd"},
    "mariadb": {"mariadbd", "mysqld"},
}
# least values that slurmdbd asks MariaDB for (Slurm's accounting documentation), in its units
DATABASE = {"innodb_lock_wait_timeout": 900, "max_allowed_packet": 16 * 2**20}
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
DAEMONS = {Role.CONTROLLER: ("slurmctld",), Role.COMPUTE: ("slurmd",), Role.DBD: ("slurmdbd", "mariadb")}

# the kernel's own share may change with an update
MEMORY_SLACK = 0.02
# above this ratio, memory was added
MEMORY_MORE = 1.25
NOTHING_YET = "not in hardware.yml yet: `deploy` writes it"

# first match wins; a hint of its own where hints.py has none that is narrow enough
_REASONS = (
    (r"REMOTE HOST IDENTIFICATION HAS CHANGED|host key .*has changed", "its host key has changed", ""),
    (r"Host key verification failed|No \S+ host key is known", "its host key is not known here", ""),
    (r"Permission denied|Too many authentication failures", "login refused: no key or password is accepted", ""),
    (r"Connection refused", "connection refused", ""),
    (r"No route to host|Network is unreachable|Host is unreachable", "no route to the node", ""),
    (r"Could not resolve hostname|Name or service not known", "its name does not resolve on this machine", ""),
    (
        r"banner exchange|Timeout, server .*not responding|Broken pipe|closed by|reset by",
        "it accepts the connection and then does not answer",
        "the node hangs or is overloaded: see its console",
    ),
    (r"timed? ?out", "no answer", ""),
)
_PYTHON = re.compile(
    r"module interpreter .* was not found|python3?: (command )?not found|minimum of Python|Python \S+ or newer|"
    r"No such file or directory.*python|SyntaxError: future feature annotations",
    re.IGNORECASE,
)
# Ansible's error for a sudo that says nothing, and asks for nothing
SILENT_SUDO = "waiting for privilege escalation"
_HUNG = re.compile(r"timed out after|Timed out|task .* timeout", re.IGNORECASE)


def sudo(node: NodeFacts, _: Declared) -> Check:
    """Ansible becomes root there."""
    if not node.sudo:
        return passed("sudo", node.name, "works")
    text = node.sudo.removeprefix("Task failed: ").strip()
    if "sudo-rs-with-a-password" in text:
        return failed(
            "sudo", node.name, "sudo-rs asks for a password, and Ansible can't give it one", hint=hint_for(text)
        )
    if any(words in text for words in ("Missing sudo", "password is required", "authentication is required")):
        return failed("sudo", node.name, "sudo asks for a password", hint="give it with -K, here and to `deploy`")
    if "Incorrect" in text:
        return failed("sudo", node.name, "sudo refused the password given with -K", hint=hint_for(text))
    return failed("sudo", node.name, "sudo does not answer" if SILENT_SUDO in text else text, hint=hint_for(text))


def python(node: NodeFacts, _: Declared) -> Check:
    """One that the control machine's ansible-core works with; older ones do not even answer."""
    return _refused("python", "python", node) or passed("python", node.name, node.python)


def _refused(name: str, about: str, node: NodeFacts) -> Check | None:
    """A failed check where a deploy would refuse the node."""
    message, hint = node.refusals.get(about, ("", ""))
    return failed(name, node.name, message, hint=hint) if message else None


def system(node: NodeFacts, _: Declared) -> Check:
    """Distribution and version, by the tables of group_vars."""
    refused = _refused("os", "platform", node) or _refused("os", "slurm", node)
    if refused:
        return refused
    has, known = f"{node.distribution} {node.version}", node.settings.tested
    tested = ", ".join(f"{name} {' and '.join(versions)}" for name, versions in known.items())
    versions = known.get(node.distribution, ())
    if node.version in versions or node.version.partition(".")[0] in versions:
        return passed("os", node.name, has, tested)
    return warned("os", node.name, f"deepopsctl is not tested on {has}", has, tested)


def login_keys(node: NodeFacts, _: Declared) -> Check:
    """No other user can add a key, or anything that a login runs."""
    user, home, keys = (node.login[word] for word in ("user", "networked", "keys"))
    if not keys:
        text = "root's keys are root's" if user == "root" and node.root else "only root can see it"
        return passed("login-keys", node.name, text) if node.root else skipped("login-keys", node.name, text)
    if home:
        return failed(
            "login-keys", node.name, f"{user} may become root, and its home is on a file server: {home}", home
        )
    if keys != "root" and node.managed:
        return warned("login-keys", node.name, f"sshd reads keys of {user} from its home: `deploy` moves them")
    return passed("login-keys", node.name, f"in root's file, {user}" if keys == "root" else "`deploy` moves them")


def hostname(node: NodeFacts, declared: Declared) -> Check:
    """Its own name; another node's name means swapped addresses."""
    refused = _refused("hostname", "name", node) or _refused("hostname", "cloud-init", node)
    if refused:
        return refused
    called = node.hostname.partition(".")[0]
    if called == node.name:
        return passed("hostname", node.name, node.name)
    if called in declared.names:
        return failed("hostname", node.name, f"its hostname is {called}, which is another node", called)
    if node.settings.set_hostname:
        message = f"its hostname is {called}: `deploy` will change it"
        return warned("hostname", node.name, message, called, node.name)
    message = f"its hostname is {called}, and `slurm_set_hostname: false` keeps it"
    return failed("hostname", node.name, message, called, node.name)


def package_lock(node: NodeFacts, _: Declared) -> Check:
    """A lock that is held now."""
    if not node.packages.manager:
        return skipped("package-lock", node.name, "no package manager that is known")
    if node.packages.lock:
        return warned("package-lock", node.name, f"{node.packages.lock} holds it")
    if not node.packages.seen:
        return skipped("package-lock", node.name, "only root can read its lock, and sudo does not work")
    return passed("package-lock", node.name, "free")


def packages_broken(node: NodeFacts, _: Declared) -> Check:
    """What an earlier transaction did not finish."""
    if node.packages.manager != "dpkg":
        return skipped("packages-broken", node.name, "only dpkg is asked")
    if node.packages.broken:
        listed = ", ".join(node.packages.broken[:5]) + (" ..." if len(node.packages.broken) > 5 else "")
        return failed("packages-broken", node.name, f"dpkg did not finish with {listed}")
    if node.packages.interrupted:
        return failed("packages-broken", node.name, "dpkg was interrupted")
    return passed("packages-broken", node.name, "all finished")


def restarts(node: NodeFacts, _: Declared) -> Check:
    """Nothing but deepopsctl restarts or replaces daemons under jobs."""
    if not node.managed:
        if node.restarts:
            return skipped("restarts", node.name, f"{'; '.join(node.restarts)}: `deploy` configures it")
        return passed("restarts", node.name, "nothing restarts daemons")
    causes = [*node.restarts, *([f"not held: {', '.join(node.unheld)}"] if node.unheld else [])]
    if causes:
        return warned("restarts", node.name, "; ".join(causes))
    return passed("restarts", node.name, "nothing but deepopsctl")


def repositories(node: NodeFacts, _: Declared) -> Check:
    """Repositories that a deploy would fail to reach."""
    if not node.outside:
        return passed("repositories", node.name, "reached, or none needed")
    words = "; ".join(
        f"no way to {each.url} ({each.why}): {each.what} will be left out"
        + ("" if each.optional else ", and the deploy fails")
        for each in node.outside
    )
    result = warned if all(each.optional for each in node.outside) else failed
    return result("repositories", node.name, words)


def disk(node: NodeFacts, _: Declared) -> Check:
    """The worst of the file systems."""
    fatal = [text for entry in node.disks for text in room.shortages(asdict(entry))]
    if fatal:
        return failed("disk", node.name, "; ".join(fatal))
    tight = [entry for entry in node.disks if entry.free_mb < room.BOUNDS[entry.path][1]]
    if tight:
        words = ", ".join(f"{entry.path} has {entry.free_mb} MiB left" for entry in tight)
        return warned("disk", node.name, words, "", ", ".join(f"{e.path} {room.BOUNDS[e.path][1]} MiB" for e in tight))
    if not node.disks:
        return skipped("disk", node.name, "the node reports none")
    return passed("disk", node.name, f"{min(entry.free_mb for entry in node.disks) / 1024:.1f}", unit="GiB free")


def time_service(node: NodeFacts, _: Declared) -> Check:
    """The daemons that set the clock."""
    if node.container:
        return skipped("time-service", node.name, "a container uses its host's clock")
    daemons = ", ".join(node.time_daemons)
    if not daemons and node.managed:
        return failed("time-service", node.name, "no daemon sets the clock")
    if not daemons:
        return skipped("time-service", node.name, "none yet: `deploy` installs chrony")
    if len(node.time_daemons) > 1:
        return warned("time-service", node.name, f"several daemons set the clock: {daemons}", daemons, "one")
    if not node.synchronised:
        return warned("time-service", node.name, f"{daemons} runs and has not set the clock", daemons)
    return passed("time-service", node.name, daemons)


def ports(node: NodeFacts, declared: Declared) -> Check:
    """The ports of the node's daemons, and the programs that listen on them."""
    roles = declared.roles(node.name)
    daemons = [daemon for role, listed in DAEMONS.items() if role in roles for daemon in listed]
    wanted = {node.ports[daemon]: daemon for daemon in daemons if daemon in node.ports}
    in_use = [entry for entry in node.listeners if entry.port in wanted]
    foreign = [
        entry for entry in in_use if entry.command and entry.command not in EXPECTED_PROGRAMS[wanted[entry.port]]
    ]
    if foreign:
        words = ", ".join(
            f"{entry.command} (pid {entry.pid}) listens on {entry.port}, {wanted[entry.port]}'s port"
            for entry in foreign
        )
        return failed("ports", node.name, words)
    hidden = ", ".join(str(entry.port) for entry in in_use if not entry.command)
    if hidden and node.root:
        message = f"which program listens on {hidden} can't be read: root lacks CAP_SYS_PTRACE here (a container?)"
        return warned("ports", node.name, message)
    if hidden:
        return skipped("ports", node.name, "only root can list listeners, and sudo does not work")
    used = ", ".join(dict.fromkeys(entry.command for entry in in_use))
    return passed("ports", node.name, f"used by {used}" if used else "free")


def firewall(node: NodeFacts, _: Declared) -> Check:
    """An active firewall is only a warning."""
    if node.firewalls:
        names = " and ".join(node.firewalls)
        return warned("firewall", node.name, f"{names} is active: jobs need ports between the nodes", names, "none")
    return passed("firewall", node.name, "none")


def foreign_slurm(node: NodeFacts, _: Declared) -> Check:
    """Slurm on a node without a deploy."""
    if node.managed or not (node.slurm_daemons or node.slurm_version):
        return passed("foreign-slurm", node.name, "none")
    running = f", {' and '.join(node.slurm_daemons)} run" if node.slurm_daemons else ""
    what = f"Slurm {node.slurm_version}".strip()
    return warned("foreign-slurm", node.name, f"{what} is installed{running}, but not by deepopsctl")


def plugins(node: NodeFacts, _: Declared) -> Check | None:
    """The SPANK plugins that every job loads are of the Slurm there."""
    if not node.plugins:
        return None
    has = release_of(node.slurm_version)
    wrong = {
        str(plugin["path"]): f"was built for Slurm {plugin['version']}" if plugin["there"] else "is not there"
        for plugin in node.plugins
        if not plugin["there"] or (has and release_of(str(plugin["version"])) not in ("", has))
    }
    if not wrong:
        return passed("plugins", node.name, ", ".join(str(plugin["path"]) for plugin in node.plugins))
    words = "; ".join(f"{path} {why}" for path, why in wrong.items())
    required = any(plugin["required"] and plugin["path"] in wrong for plugin in node.plugins)
    if required:
        return failed("plugins", node.name, f"{words}: slurmd does not start with it", measured=has)
    return warned("plugins", node.name, f"{words}: jobs continue without it", has)


def storage_rights(node: NodeFacts, _: Declared) -> Check:
    """What other nodes write there gives no user rights here."""
    if not node.storage:
        return passed("storage-rights", node.name, "nosuid and nodev, or nothing shared")
    words = [f"{each['path']} ({each['type']}{', exported' if each['served'] else ''})" for each in node.storage]
    listed = ", ".join(words[:5]) + (f" and {len(words) - 5} more" if len(words) > 5 else "")
    lacks = sorted({str(flag) for each in node.storage for flag in items(each.get("lacks"))}, reverse=True)
    text = f"without {' and '.join(lacks)}: {listed}; root of any node that writes there can become root here"
    return warned("storage-rights", node.name, text, expected="nosuid,nodev")


def needs(node: NodeFacts, declared: Declared) -> Check:
    """What Slurm's settings and cluster.yml need there: programs, plugins, directories, devices, cores."""
    if not node.root:
        return skipped("slurm-needs", node.name, "only root can see all of it, and sudo does not work")
    own = declared.node(node.name)
    node_set = NodeSet((node.name,), own.gpus, own.features, own.slurm)
    beyond = beyond_hardware([node_set], declared.hardware, node.settings.slurm)
    # the check of the memory has what the node itself reports
    missing = [*node.unmet, *(each.message for each in beyond if each.key != "RealMemory")]
    if missing:
        return failed("slurm-needs", node.name, "; ".join(missing))
    return passed("slurm-needs", node.name, "all of it is there")


def database(node: NodeFacts, declared: Declared) -> Check | None:
    """The settings in force of the MariaDB that slurmdbd uses."""
    if Role.DBD not in declared.roles(node.name):
        return None
    has = node.database
    if has.get("problem"):
        return failed("database", node.name, f"the database server {has.get('server', '')}: {has['problem']}")
    if set(has) == {"server"}:
        return passed("database", node.name, f"{has['server']} answers; its settings are compared once it is deployed")
    if not has:
        return skipped("database", node.name, "no MariaDB answers there")
    if has.get("innodb_snapshot_isolation") == "ON":
        words = "innodb_snapshot_isolation is ON: a conflict of two writes can stop slurmdbd"
        return (failed if node.managed else warned)("database", node.name, words, "ON", "OFF")
    low = [
        f"{name} is {has[name]}, {least} is needed"
        for name, least in DATABASE.items()
        if int(has.get(name, least)) < least
    ]
    if "server" not in has and has["bind_address"] not in LOOPBACK:
        low.append(
            f"it listens on {has['bind_address'] or 'all addresses'}, and only slurmdbd on this machine needs it"
        )
    if low:
        return warned("database", node.name, "; ".join(low))
    return passed("database", node.name, "meets slurmdbd's requirements")


def security(node: NodeFacts, _: Declared) -> Check:
    """Vulnerabilities that the installed Slurm and munge are known to have."""
    packaged = {version for name, version in node.versions.items() if name.startswith("slurm")}
    versions = [("Slurm", version) for version in packaged or {node.slurm_version}]
    versions.append(("munge", node.versions.get("munge", "")))
    versions = sorted((name, version) for name, version in versions if is_a_version(version))
    if not versions:
        return skipped("security", node.name, "neither Slurm nor munge is installed yet")
    words = []
    for name, version in versions:
        known = open_ones(version, MUNGE if name == "munge" else SLURM)
        if known:
            listed = "; ".join(f"{each.names} ({each.date})" for each in known[:3])
            words.append(f"{name} {version} has {listed}{' ...' if len(known) > 3 else ''}")
    has = ", ".join(f"{name} {version}" for name, version in versions)
    if words:
        return warned("security", node.name, "; ".join(words), has, f"no vulnerability known on {AS_OF}")
    return passed("security", node.name, has, f"no vulnerability known on {AS_OF}")


def memory(node: NodeFacts, declared: Declared) -> Check | None:
    """RealMemory of cluster.yml exactly, hardware.yml with some slack; in MiB."""
    stored = declared.hardware.get(node.name)
    exact = _option(declared, node.name, "realmemory")
    wanted = exact or (stored.memory_mb if stored else 0)
    if not _computes(declared, node.name):
        return None
    if not wanted:
        return skipped("memory", node.name, NOTHING_YET)
    measured, expected = str(node.memory_mb), f"at least {wanted}"
    if node.memory_mb < (wanted if exact else wanted * (1 - MEMORY_SLACK)):
        where = "cluster.yml" if exact else "hardware.yml"
        message = f"the node has less memory than {where} says: Slurm would drain it"
        return failed("memory", node.name, message, measured, expected, unit="MiB")
    if not exact and node.memory_mb > wanted * MEMORY_MORE:
        message = "the node has more memory than hardware.yml says: the rest is not used"
        return warned("memory", node.name, message, measured, expected, "MiB")
    return passed("memory", node.name, measured, expected, "MiB")


def cpus(node: NodeFacts, declared: Declared) -> Check | None:
    """CPUs of hardware.yml."""
    stored = declared.hardware.get(node.name)
    if not _computes(declared, node.name):
        return None
    if not stored:
        return skipped("cpus", node.name, NOTHING_YET)
    measured, wanted = str(node.cpus), stored.cpus
    if node.cpus < wanted:
        message = "the node has fewer CPUs than are declared: Slurm would drain it"
        return failed("cpus", node.name, message, measured, str(wanted))
    if node.cpus > wanted:
        message = "the node has more CPUs than hardware.yml says: the rest is not used"
        return warned("cpus", node.name, message, measured, str(wanted))
    return passed("cpus", node.name, measured, str(wanted))


def cgroup(node: NodeFacts, declared: Declared) -> Check | None:
    """A cgroup tree that slurmd may use, unless the site disables confinement."""
    if not _computes(declared, node.name):
        return None
    if node.settings.confinement == "none":
        return skipped("cgroup", node.name, "`slurm_confinement: none`: jobs are not confined")
    if not node.root:
        return skipped("cgroup", node.name, "only root can test it, and sudo does not work")
    if node.cgroup != "none":
        return passed("cgroup", node.name, node.cgroup)
    message = "there is no cgroup tree in which slurmd can confine jobs: a deploy leaves the node out"
    return failed("cgroup", node.name, message, "none", "v2 or v1")


def gpus(node: NodeFacts, declared: Declared) -> Check | None:
    """GPUs on the PCI bus; device files alone are not enough."""
    declared_gpus, count = declared.node(node.name).gpus, len(node.gpus.bus)
    if not declared_gpus:
        if not count or not _computes(declared, node.name):
            return None
        return warned("gpus", node.name, "cluster.yml declares no GPUs for it: they will not be used", str(count), "0")
    if count == declared_gpus.count:
        return passed("gpus", node.name, str(count), str(declared_gpus.count))
    if count > declared_gpus.count:
        message = "there are more than cluster.yml declares: the rest is not used"
        return warned("gpus", node.name, message, str(count), str(declared_gpus.count))
    if count:
        return failed(
            "gpus", node.name, "there are fewer than cluster.yml declares", str(count), str(declared_gpus.count)
        )
    if node.container and node.gpus.files == declared_gpus.count:
        message = "device files only, none on the PCI bus: simulated?"
        return warned("gpus", node.name, message, f"{node.gpus.files} device files", str(declared_gpus.count))
    return failed("gpus", node.name, "no NVIDIA GPU is on the PCI bus", "0", str(declared_gpus.count))


def gpu_model(node: NodeFacts, declared: Declared) -> Check | None:
    """The declared type matches the driver's name of each GPU."""
    declared_gpus = declared.node(node.name).gpus
    if not declared_gpus or not declared_gpus.type:
        return None
    if not node.gpus.models:
        return skipped("gpu-model", node.name, "only a loaded NVIDIA driver knows it")
    models = ", ".join(dict.fromkeys(node.gpus.models))
    if all(may_be(model, declared_gpus.type) for model in node.gpus.models):
        return passed("gpu-model", node.name, models, declared_gpus.type)
    message = f"cluster.yml calls them {declared_gpus.type}, the driver {models}"
    return warned("gpu-model", node.name, message, models, declared_gpus.type)


def gpu_modules(node: NodeFacts, declared: Declared) -> Check | None:
    """The kernel modules that a deploy configures are loaded."""
    if not (declared.node(node.name).gpus and node.gpus.modules):
        return None
    wanted = ", ".join(node.gpus.modules)
    if node.container:
        return skipped("gpu-modules", node.name, "a container has its host's kernel")
    missing = [name for name, runs in node.gpus.modules.items() if not runs]
    if not missing:
        return passed("gpu-modules", node.name, wanted, wanted)
    message = f"not loaded: {', '.join(missing)}"
    return failed("gpu-modules", node.name, message, "not loaded", wanted)


def secure_boot(node: NodeFacts, declared: Declared) -> Check | None:
    """A firmware that refuses unsigned modules keeps the driver from loading."""
    if not declared.node(node.name).gpus:
        return None
    if node.secure_boot == "unknown":
        return skipped("secure-boot", node.name, "the node's firmware can't be read")
    if node.secure_boot == "on" and not node.gpus.driver:
        message = "it is on: an NVIDIA driver that is not signed will not load"
        return warned("secure-boot", node.name, message, "on", "off, or a signed driver")
    words = {"none": "started without EFI", "on": "on, and the driver is loaded"}
    return passed("secure-boot", node.name, words.get(node.secure_boot, node.secure_boot))


def check_failure(failure: Failure) -> Check:
    """The check that failed."""
    text = " ".join(failure.message.split())
    if failure.unreachable:
        return _unreachable(failure, text)
    if _PYTHON.search(text):
        return failed("python", failure.host, text, "none that will do", hint=failure.hint)
    if _HUNG.search(text):
        hint = "log in and find what hangs (`uptime`, `dmesg`, a dead network file system)"
        return failed("examined", failure.host, "the login works, then it does not answer", hint=hint)
    return failed("examined", failure.host, text, hint=failure.hint)


def _computes(declared: Declared, name: str) -> bool:
    return Role.COMPUTE in declared.node(name).roles


def _option(declared: Declared, name: str, key: str) -> int:
    """A number that cluster.yml gives under `slurm:`; 0 without."""
    options = {word.lower(): value for word, value in declared.node(name).slurm.items()}
    value = str(options.get(key, ""))
    return int(value) if value.isdigit() else 0


def _unreachable(failure: Failure, text: str) -> Check:
    for pattern, sentence, hint in _REASONS:
        if re.search(pattern, text, re.IGNORECASE):
            return failed("reachable", failure.host, sentence, hint=hint or hint_for(text))
    return failed("reachable", failure.host, text, hint=failure.hint)


# in the order of the report
CHECKS: tuple[Callable[[NodeFacts, Declared], Check | None], ...] = (
    python,
    sudo,
    login_keys,
    hostname,
    system,
    package_lock,
    packages_broken,
    restarts,
    repositories,
    time_service,
    ports,
    firewall,
    foreign_slurm,
    plugins,
    needs,
    security,
    storage_rights,
    database,
    disk,
    memory,
    cpus,
    cgroup,
    gpus,
    gpu_model,
    gpu_modules,
    secure_boot,
)
