"""Debian packages: what is installed, and one transaction for what is missing."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    command as node_command,
    errors as node_errors,
    packages_query,
    record as node_record,
    services as node_services,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node.waiting import wait_until

ENVIRONMENT = {
    "DEBIAN_FRONTEND": "noninteractive",
    "LC_ALL": "C.UTF-8",
    "APT_LISTCHANGES_FRONTEND": "none",
    # Ubuntu's would restart daemons by itself
    "NEEDRESTART_SUSPEND": "1",
    "UCF_FORCE_CONFFOLD": "1",
}
APT = [
    "apt-get",
    "--yes",
    "--quiet",
    "-o",
    "Dpkg::Options::=--force-confold",
]
LISTS = "/var/lib/apt/lists"
# what apt makes of its package lists
LISTS_CACHE = "/var/cache/apt/srcpkgcache.bin"
# what it was made from
SOURCES = (LISTS, LISTS + "/*", "/etc/apt/sources.list*", "/etc/apt/sources.list.d/*")
# how long another package manager may work on a node that has just started
LOCK_WAIT_S = 300
# and how long it may work after ours, until packages are held again
AGAIN_S = 60
LOCKED = re.compile(
    r"Could not get lock|Unable to acquire the dpkg frontend lock|Unable to lock|is another process using it"
    r"|lock was locked by "
)
INTERRUPTED = "dpkg was interrupted"
# kernels come as new packages; nothing is removed by it
UPGRADE = ["--with-new-pkgs", "--no-install-recommends", "upgrade"]
_REMOVED = re.compile(r"^(?:Remv|Purg) (\S+)", re.MULTILINE)
_CANDIDATE = re.compile(r"^(\S+):\n  Installed: .*\n  Candidate: (?!\(none\))(\S+)$", re.MULTILINE)
_UNFETCHED = re.compile(r"^[WE]: Failed to fetch [a-z+]+:/+([^/\s]+)", re.MULTILINE)
# What a cluster lives by. Debian's slurmctld cancels all jobs when it is removed; a purge deletes its state, that of
# slurm-wlm-basic-plugins /etc/slurm.
VITAL = re.compile(r"slurm(ctld|d|dbd|-client|-wlm.*|-smd.*)|munge|mariadb-server.*")
VITAL_PATTERNS = ("slurmctld", "slurmd", "slurmdbd", "slurm-*", "munge", "mariadb-server*")
DAEMONS = ("munge", "mariadb", "slurmdbd", "slurmctld", "slurmd")
# units whose packages start them only as Debian's policy says
BY_POLICY = frozenset(f"{name}.service" for name in (*DAEMONS, "chrony"))
POLICY = "/usr/sbin/policy-rc.d"
# packages that only deepopsctl changes: apt holds them for everybody else, unattended upgrades included
GUARDED = os.path.join(node_record.STATE, "guarded-packages")
POLICY_HEADER = "#!/bin/sh\n# Written by deepopsctl while it installs packages\n"
POLICY_TEXT = """\
# Their scripts leave the daemons of the cluster alone; a deploy restarts them in its own order, those that have to.
# Without effect once the process that installs has ended, however it ended.
[ "$(cut -d ' ' -f 22 /proc/{pid}/stat 2>/dev/null)" = {start} ] || exit 104
case ${{1%.service}} in
{daemons}) exit 101 ;;
esac
exit 104
"""


installed, held, is_packaged = packages_query.installed, packages_query.held, packages_query.is_packaged


class PackageError(node_errors.HintedError):
    """The package manager refused."""


def _run(argv: Sequence[str]) -> node_command.Result:
    return node_command.run_merged(argv, env=node_command.environment(**ENVIRONMENT))


def output(argv: Sequence[str]) -> str:
    """What a command that only asks prints, however it ends: it complains of each name that it does not know."""
    return node_command.run(argv, env=node_command.environment(**ENVIRONMENT)).output


def no_cache() -> list[str]:
    """The options of an apt that only asks: it writes nothing, not even its own cache.

    It reads that cache where it is current: to read the lists takes ten times as long.
    """
    off = ["-o", "Dir::Cache::pkgcache="]
    try:
        made = os.stat(LISTS_CACHE).st_mtime
        newest = max(os.stat(path).st_mtime for pattern in SOURCES for path in glob.glob(pattern))
    except (OSError, ValueError):
        newest, made = 1.0, 0.0
    return off if newest <= made else [*off, "-o", "Dir::Cache::srcpkgcache="]


def versions(names: Sequence[str]) -> dict[str, list[str]]:
    """{name: [version]} that the package lists of this node have, newest first."""
    available: dict[str, list[str]] = {}
    for name, version in versions_in(output(["apt-cache", "madison"] + list(names))):
        if version not in available.setdefault(name, []):
            available[name].append(version)
    return available


def versions_in(shown: str) -> list[tuple[str, str]]:
    """(name, version) of each line of `apt-cache madison`."""
    rows = [[part.strip() for part in line.split("|")] for line in shown.splitlines()]
    return [(row[0], row[1]) for row in rows if len(row) == 3]


def in_upstream(names: Sequence[str], upstream: str) -> dict[str, str]:
    """{name: version} of those that the package lists of this node have in an upstream version."""
    return in_upstream_of(versions(names), upstream) if names and upstream else {}


def in_upstream_of(known: Mapping[str, Sequence[str]], upstream: str) -> dict[str, str]:
    """The same from {name: [version]}: the newest revision of it."""
    fitting = {
        name: [v for v in versions_of_name if upstream_of(v) == upstream] for name, versions_of_name in known.items()
    }
    return {name: versions_of_name[0] for name, versions_of_name in fitting.items() if versions_of_name}


def upstream_of(version: str) -> str:
    """`580.95.05` of `1:580.95.05-0ubuntu1`."""
    return version.rpartition(":")[2].rpartition("-")[0]


def candidates(names: Sequence[str]) -> dict[str, str]:
    """{name: version} that the package lists of this node have; it writes nothing, not even apt's own cache."""
    return candidates_in(output(["apt-cache"] + no_cache() + ["policy"] + list(names)))


def candidates_in(shown: str) -> dict[str, str]:
    """The same from the output of `apt-cache policy`."""
    return dict(_CANDIDATE.findall(shown))


def install(
    names: Sequence[str], lock_wait: int = LOCK_WAIT_S, downgrade: bool = False, held: Sequence[str] = ()
) -> None:
    """Install packages, refreshing the lists only when they do not know a name. Raises PackageError.

    The units in `held` are not started by their packages' scripts: those of BY_POLICY, where the policy is ours.
    """
    deadline = time.monotonic() + lock_wait
    finish_interrupted_transaction()
    wanted = ["install", "--no-install-recommends"] + ["--allow-downgrades"] * downgrade + list(names)
    result, silent = _apt(wanted, deadline, held), ""
    if not result.ok and INTERRUPTED in result.message:
        # the process that held the lock until now was killed
        finish_interrupted_transaction()
        result = _apt(wanted, deadline, held)
    if not result.ok and re.search(
        r"Unable to locate|no installation candidate|was not found|Failed to fetch|404", result.message
    ):
        silent = _without_lists(_checked(["update"], deadline))
        result = _apt(wanted, deadline, held)
    if not result.ok:
        raise PackageError(_summary(result.message), _hint(result.message, silent))


def refresh(options: Sequence[str], lock_wait: int = LOCK_WAIT_S) -> None:
    """Fetch package lists. Raises PackageError."""
    _checked(["update"] + list(options), time.monotonic() + lock_wait)


def simulated_upgrade(options: Sequence[str]) -> str:
    """What apt-get prints of an upgrade of all packages that it would not do. Raises PackageError."""
    # a simulation releases nothing: `options` have what else is held
    done = _run(["apt-get", "--simulate", "--ignore-hold"] + no_cache() + list(options) + UPGRADE)
    if not done.ok:
        raise PackageError(_summary(done.message), _hint(done.message))
    return done.output


def upgrade(options: Sequence[str], lock_wait: int = LOCK_WAIT_S) -> None:
    """Upgrade all packages that can be without removing one. Raises PackageError."""
    finish_interrupted_transaction()
    _checked(list(options) + UPGRADE, time.monotonic() + lock_wait)


def remove(names: Sequence[str], lock_wait: int = LOCK_WAIT_S) -> None:
    """Remove packages with their configuration, and nothing else. Raises PackageError."""
    finish_interrupted_transaction()
    _checked(["purge"] + list(names), time.monotonic() + lock_wait)


def with_configuration_only(names: Sequence[str]) -> list[str]:
    """Those that are removed, and whose files in /etc are still there."""
    states = packages_query.states(names) if names else {}
    return [name for name, state in states.items() if state.status == "config-files"]


def removable_with(names: Sequence[str]) -> list[str]:
    """The named packages with what came for them alone; [] where a package of the site needs one.

    Changes nothing. Raises PackageError.
    """
    # what apt would remove without them is not managed
    before = _simulated(["autoremove"])
    removed = [name for name in _simulated(["remove", "--auto-remove"] + list(names)) if name not in before]
    return [] if chosen(removed) - set(names) else removed


def guarded() -> set[str]:
    """Packages that deepopsctl has apt hold, so that no upgrade replaces a daemon under its jobs."""
    try:
        with open(GUARDED) as stream:
            return set(stream.read().split())
    except OSError:
        return set()


def guard(names: Iterable[str]) -> None:
    """Have apt hold these packages, and none that were guarded before and are not among them. Raises PackageError."""
    before, now = guarded(), held()
    # before it happens, so that an interrupted run leaves no hold without a record
    node_record.write_atomically(GUARDED, "".join(f"{name}\n" for name in sorted(names)).encode(), 0o644)
    for how, changed in (("unhold", sorted((before - set(names)) & now)), ("hold", sorted(set(names) - now))):
        result = _mark_patiently(how, changed, LOCK_WAIT_S) if changed else None
        if result and not result.ok:
            raise PackageError(f"apt-mark {how}: {_summary(result.message)}", _hint(result.message))


def _mark_patiently(how: str, names: list[str], seconds: float) -> node_command.Result:
    """apt-mark needs dpkg's lock, which another package manager may hold; a failure is the result."""
    return wait_until(lambda: _run(["apt-mark", how] + names), seconds, 1, lambda result: result.ok)


def mark(how: str, names: Sequence[str]) -> None:
    """`hold` or `unhold` packages. Raises CommandError."""
    node_command.require(["apt-mark", how] + list(names))


def chosen(names: Sequence[str]) -> set[str]:
    """Those that a person, or a tool, asked for; the others came because these need them."""
    return set(output(["apt-mark", "showmanual"] + list(names)).split()) if names else set()


def _simulated(arguments: list[str]) -> list[str]:
    """Packages that apt-get would remove. Raises PackageError."""
    done = _run(["apt-get", "--simulate"] + no_cache() + arguments)
    if not done.ok:
        raise PackageError(_summary(done.message), _hint(done.message))
    return _REMOVED.findall(done.output)


def known(prefix: str) -> list[str]:
    """Names of packages that the package lists have."""
    return sorted(output(["apt-cache", "--generate", "pkgnames", prefix]).split())


def simulated_install(names: Sequence[str]) -> str:
    """What apt prints about installing these packages, without any of those they only recommend."""
    return output(["apt-get", "--simulate", "--no-install-recommends", "install", *names])


def finish_interrupted_transaction() -> None:
    """What a power cut or kill in the middle of dpkg left half-configured is finished first."""
    if packages_query.interrupted() or packages_query.broken():
        with _daemons_left_alone():
            _run(["dpkg", "--configure", "--pending", "--force-confold"])


def _refuse_removals(arguments: list[str]) -> None:
    """Raises PackageError where apt would remove what the cluster lives by, also by another package's conflict."""
    if not installed(VITAL_PATTERNS):
        return
    lost = [
        name
        for name in _REMOVED.findall(output(APT + ["--simulate"] + no_cache() + arguments))
        if VITAL.fullmatch(name)
    ]
    if lost:
        raise PackageError(
            f"apt would remove {' '.join(lost)}, which can cancel all jobs",
            f"see `apt-get --simulate {' '.join(arguments)}` on the node: another package conflicts with them",
        )


def has_foreign_policy() -> bool:
    """Whether a site's own policy decides which units a package starts."""
    try:
        with open(POLICY, "rb") as stream:
            return not stream.read().startswith(POLICY_HEADER.encode())
    except OSError:
        return False


@contextlib.contextmanager
def _daemons_left_alone(held_units: Sequence[str] = ()) -> Iterator[None]:
    """No package's script restarts a daemon of the cluster; what runs a replaced program is noted to be restarted."""
    if has_foreign_policy():
        yield
        return
    with open("/proc/self/stat") as stream:
        start = stream.read().split()[21]
    left_alone = (*DAEMONS, *(unit.rpartition(".")[0] for unit in held_units if unit in BY_POLICY))
    text = POLICY_HEADER + POLICY_TEXT.format(pid=os.getpid(), start=start, daemons="|".join(left_alone))
    node_record.write_atomically(POLICY, text.encode(), 0o755)
    try:
        yield
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(POLICY)
        for unit, pid in node_services.main_pids([f"{name}.service" for name in DAEMONS]).items():
            if pid and node_services.runs_a_replaced_program(pid):
                node_record.mark_pending(unit, "another version of its package")


def _apt(arguments: list[str], deadline: float, held_units: Sequence[str] = ()) -> node_command.Result:
    """Run apt-get, and wait for other package managers until the deadline: apt itself waits for one of its locks.

    What is guarded is released for that, and holds of others are not.
    """
    own = sorted(guarded() & held()) if arguments[0] != "update" else []
    released = _mark_patiently("unhold", own, deadline - time.monotonic()) if own else None
    if released and not released.ok:
        return released
    try:
        return _patiently(arguments, deadline, held_units)
    finally:
        there = sorted(installed(own))
        if there:
            # where this fails, the gate notices that they are no longer held
            _mark_patiently("hold", there, AGAIN_S)


def _patiently(arguments: list[str], deadline: float, held_units: Sequence[str]) -> node_command.Result:
    def attempt() -> node_command.Result:
        if arguments[0] != "update":
            _refuse_removals(arguments)
        with _daemons_left_alone(held_units):
            return _run(APT + arguments)

    left = deadline - time.monotonic()
    return wait_until(attempt, left, 1, lambda result: result.ok or not LOCKED.search(result.message))


def _checked(arguments: list[str], deadline: float) -> str:
    """What apt-get prints. Raises PackageError."""
    result = _apt(arguments, deadline)
    if not result.ok:
        raise PackageError(_summary(result.message), _hint(result.message))
    return result.message


def _summary(output: str) -> str:
    """The last few errors, each once: apt repeats one for every list of a source."""
    errors = dict.fromkeys(line for line in output.splitlines() if line.startswith(("E:", "dpkg: error", "W: Failed")))
    return "\n".join([*errors][-6:] or output.splitlines()[-6:])


def _without_lists(updated: str) -> str:
    """The sources that did not answer `apt-get update`, which ends well all the same; all of them without any list."""
    silent = dict.fromkeys(_UNFETCHED.findall(updated))
    if silent:
        return ", ".join(silent)
    with contextlib.suppress(OSError), os.scandir(LISTS) as lists:
        if any("_Packages" in each.name and each.stat().st_size for each in lists):
            return ""
    return "its mirror"


def _hint(output: str, silent: str = "") -> str:
    if LOCKED.search(output):
        return "another package manager works on this node; wait until it is done, then deploy again"
    if "No space left" in output or "enough free space" in output:
        return "free disk space on this node (df -h / /var), then deploy again"
    if re.search("GPG error|is not signed|invalid signature|NO_PUBKEY", output):
        return "nothing is taken from there: the repository is not signed by the key that it should be signed by"
    if re.search("Unable to locate|no installation candidate|was not found", output):
        if silent:
            return (
                f"this node has no package lists of {silent}, which did not answer `apt-get update`: "
                "check the network, DNS and proxy there"
            )
        return "this node's package sources do not carry it: see /etc/apt/sources.list.d"
    if "Packages were downgraded" in output:
        return "a newer version is installed: request that version, or remove it manually"
    if "Failed to fetch" in output or "Temporary failure resolving" in output:
        return "this node cannot reach its package mirror: check the network, DNS and proxy there"
    return "try `apt-get -f install` on the node, then deploy again"
