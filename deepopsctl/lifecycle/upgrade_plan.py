"""What `upgrade slurm` would do, from what the nodes have: refusals, notes, and which nodes come when. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from deepopsctl.lifecycle.pace import allowed_failures, batch_size
from deepopsctl.model.cluster import Cluster, Node, Role
from deepopsctl.model.json_objects import SlurmPlanParts
from deepopsctl.slurm.package_choice import PYXIS_PLUGINS, SYSTEMS, choose_repository, has_pyxis, versions_of
from deepopsctl.slurm.plugin_files import CAPABILITIES, capabilities
from deepopsctl.slurm.releases import REMOVALS, Removal, release_of, upgrade_path, upgrade_refusal
from deepopsctl.slurm.state import SlurmJob, SlurmState
from deepopsctl.text.answers import number, texts
from deepopsctl.text.node_sets import fold
from deepopsctl.text.problems import RefusedError

# slurmdbd rejects other names since the fixes of 2026 (CVE-2026-65139)
_SAFE_NAME = re.compile(r"[A-Za-z0-9_-]+")
# of each: what its daemons do at their start while an upgrade is under way
_PROGRAMS = frozenset({"slurmctld", "slurmd", "slurmdbd", "slurm-client"})
_RECONFIGURES = "reconfig_on_restart"
Text = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a node has (node program slurm_upgrade, phase query)."""

    platform: str
    installed: Mapping[str, str]
    unfinished: bool
    settings: Mapping[str, str] = field(default_factory=dict)
    record: Mapping[str, object] = field(default_factory=dict)
    database: Mapping[str, object] = field(default_factory=dict)
    plugins: tuple[Mapping[str, object], ...] = ()
    modules: tuple[str, ...] = ()

    @property
    def releases(self) -> frozenset[str]:
        """The releases of Slurm's daemons and commands; usually one. Libraries of an earlier release may be left."""
        return frozenset(release_of(version) for name, version in self.installed.items() if name in _PROGRAMS) - {""}


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options of `upgrade slurm`: a batch is a number of nodes, or a share of them with %."""

    release: str
    batch: str = "10%"
    max_failed: int | None = None
    drain: bool = False
    timeout_s: int = 24 * 3600
    # capabilities that may go
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done. With `refusals`, nothing."""

    wanted: Wanted
    installed: str
    repositories: Mapping[str, Mapping[str, object]]
    facts: Mapping[str, NodeFacts]
    center: tuple[str, ...]
    login: tuple[str, ...]
    batches: tuple[tuple[str, ...], ...]
    silent: tuple[str, ...]
    refusals: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    jobs: tuple[SlurmJob, ...] = ()
    # plugins of the new release, by platform and package
    offered: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)

    @property
    def todo(self) -> tuple[str, ...]:
        """The nodes that have another version, in their order."""
        return (*self.center, *self.login, *(name for batch in self.batches for name in batch))

    @property
    def version(self) -> str:
        """`26.05.5` of `26.05.5-1`: what daemons say."""
        return upstream(str(next(iter(self.repositories.values()))["version"])) if self.repositories else ""

    @property
    def allowed_failures(self) -> int:
        """How many nodes may fail before it stops."""
        return allowed_failures(self.wanted.max_failed, sum(map(len, self.batches)))

    def with_obstacles(self, why: Mapping[str, str]) -> Plan:
        """The plan where apt can't install the packages on these nodes, {name: why}."""
        reasons: dict[str, list[str]] = {}
        for name, reason in why.items():
            reasons.setdefault(reason, []).append(name)
        obstacles = [
            (f"{fold(names)}: the packages can't be installed: {reason}", names) for reason, names in reasons.items()
        ]
        if set(why).isdisjoint(self.center) and len(why) <= self.allowed_failures:
            return replace(self, notes=(*self.notes, *(f"{message}; left out" for message, _ in obstacles)))
        hint = "see `apt-get` on the nodes; packages of their own release fit (`deepopsctl packages build slurm`)"
        return replace(self, refusals=(*self.refusals, *((message, hint) for message, _ in obstacles)))

    def packages(self, name: str) -> dict[str, str]:
        """{package: version} that the node gets: of those that it has, all that the repository has.

        With what was in one of them and is in a package of its own now.
        """
        node = self.facts[name]
        repository = self.repositories[node.platform]
        names = {*_kept_packages(node, repository), *_split_off(node, repository, self.offered.get(node.platform, {}))}
        versions = versions_of(repository)
        return {package: versions[package] for package in sorted(names)}

    def document(self) -> SlurmPlanParts:
        """The JSON object of `--check`."""
        return {
            "from": self.installed,
            "to": self.wanted.release,
            "version": self.version,
            "controllers": list(self.center),
            "login": list(self.login),
            "batches": [list(batch) for batch in self.batches],
            "unreachable": list(self.silent),
            "refusals": [{"message": message, "hint": hint} for message, hint in self.refusals],
            "notes": list(self.notes),
            "jobs": [{"id": job.id, "user": job.user, "nodes": list(job.nodes)} for job in self.jobs],
        }


def make_plan(
    cluster: Cluster,
    wanted: Wanted,
    facts: Mapping[str, NodeFacts],
    served: Mapping[str, Mapping[str, Mapping[str, object]]],
    slurm: SlurmState,
    offered: Callable[[Mapping[str, object]], Mapping[str, Sequence[str]]] = lambda _: {},
) -> Plan:
    """The plan for what the nodes answered; nodes without an answer are left out.

    `offered` has the plugins of a repository's packages.
    """
    first, dbd = cluster.controllers[0].name, cluster.with_role(Role.DBD)[0].name
    center = tuple(node.name for node in service_hosts(cluster))
    repositories, missing = _repositories(facts, wanted.release, served)
    there = [node for node in cluster.nodes if node.name in facts and facts[node.name].installed]
    # slurmd of one whose upgrade was cut off may not have been restarted
    version = next((upstream(str(values["version"])) for values in repositories.values()), "")
    stale = {name for name, node in slurm.nodes.items() if node.version not in ("", version)}
    todo = [node for node in there if node.name in stale or not is_done(facts[node.name], repositories)]
    login = tuple(node.name for node in todo if node.name not in center and Role.COMPUTE not in node.roles)
    compute = [node.name for node in todo if node.name not in center and Role.COMPUTE in node.roles]
    record = facts[first].record if first in facts else {}
    installed = str(record.get("from") or "") or min(facts[first].releases if first in facts else (), default="")
    silent = tuple(node.name for node in cluster.nodes if node.name not in facts)
    refusals = [
        *_refusals_of_release(wanted.release, there, facts, record),
        *missing,
        *(
            (f"{name} does not answer", "slurmctld or slurmdbd runs there: it has to")
            for name in center
            if name in silent
        ),
    ]
    refusals += _refusals_of_plugins(wanted.release, facts, repositories)
    plugins = {platform: offered(repository) for platform, repository in repositories.items()}
    losses = _losses([facts[node.name] for node in todo], [node.name for node in todo], repositories, plugins)
    refusals += _refusals_of_losses(losses, wanted)
    if first in facts:
        refusals += _refusals_of_mpi(losses, facts[first].settings)
        refusals += _refusals_of_settings(facts[first].settings, installed, wanted.release)
    if dbd in facts:
        refusals += _refusals_of_database(facts[dbd].database, dbd)
    return Plan(
        wanted,
        installed,
        repositories,
        facts,
        tuple(name for name in center if any(node.name == name for node in todo)),
        login,
        tuple(_batches(compute, wanted.batch)),
        silent,
        tuple(refusals),
        (*_notes(facts, first, installed, wanted.release, silent), *_notes_of_plugins(plugins)),
        slurm.jobs_on(node.name for node in todo),
        plugins,
    )


def _kept_packages(node: NodeFacts, repository: Mapping[str, object]) -> list[str]:
    known = versions_of(repository)
    return [package for package in sorted(node.installed) if package in known]


def _split_off(
    node: NodeFacts, repository: Mapping[str, object], plugins: Mapping[str, Sequence[str]]
) -> frozenset[str]:
    """Packages that the node does not have, with what it has now in others."""
    kept = _kept_packages(node, repository)
    missing = capabilities(node.modules) - capabilities(name for package in kept for name in plugins.get(package, ()))
    others = frozenset(texts(repository.get("packages"))) - frozenset(kept)
    return frozenset(package for package in others if capabilities(plugins.get(package, ())) & missing)


def _losses(
    facts: Sequence[NodeFacts],
    names: Sequence[str],
    repositories: Mapping[str, Mapping[str, object]],
    plugins: Mapping[str, Mapping[str, Sequence[str]]],
) -> dict[str, list[str]]:
    """{capability: nodes} that the new packages do not have."""
    lost: dict[str, list[str]] = {}
    for name, node in zip(names, facts, strict=True):
        offered = plugins.get(node.platform)
        if offered:
            repository = repositories[node.platform]
            packages = {*_kept_packages(node, repository), *_split_off(node, repository, offered)}
            there = capabilities(file for package in packages for file in offered.get(package, ()))
            for capability in sorted(capabilities(node.modules) - there):
                lost.setdefault(capability, []).append(name)
    return lost


def _notes_of_plugins(plugins: Mapping[str, Mapping[str, Sequence[str]]]) -> Iterator[str]:
    if plugins and not any(plugins.values()):
        yield (
            "what the new packages can do (PMIx, NVML, PAM, Lua) was not compared: dpkg-deb is not on this machine; "
            "run `--check` on Debian or Ubuntu first"
        )


def _refusals_of_losses(losses: Mapping[str, Sequence[str]], wanted: Wanted) -> Iterator[tuple[str, str]]:
    build = f"`deepopsctl packages build slurm --release {wanted.release}` makes packages that have it"
    for capability, names in losses.items():
        if capability not in wanted.without:
            lost = f"the packages of Slurm {wanted.release} lack {capability}: {CAPABILITIES[capability]}"
            yield f"{fold(names)}: {lost}", f"{build}; `--without {capability}` gives it up"


def _refusals_of_mpi(losses: Iterable[str], settings: Text) -> Iterator[tuple[str, str]]:
    """srun does not start anything with a default that it lacks."""
    default = settings.get("MpiDefault", "")
    if default and any(f"mpi_{default}".startswith(capability) for capability in losses):
        change = "`slurm_config: {MpiDefault: none}` in settings.yml, and `deploy slurm`, before the upgrade"
        yield f"slurm.conf: MpiDefault={default}, which the new packages lack: no srun would start", change


def is_done(node: NodeFacts, repositories: Mapping[str, Mapping[str, object]]) -> bool:
    """Whether all that a node has of the repository's packages is of its version, and whole.

    Another build of what comes with them, in the same transaction, is for a deploy.
    """
    repository = repositories.get(node.platform, {})
    known = frozenset(texts(repository.get("packages")))
    versions = {version for name, version in node.installed.items() if name in known}
    return not node.unfinished and versions == {repository.get("version")}


def upstream(version: str) -> str:
    """`26.05.5` of `1:26.05.5-1+deepopsctl1`."""
    return re.sub(r"^\d+:|[-+~].*$", "", version)


def service_hosts(cluster: Cluster) -> tuple[Node, ...]:
    """The hosts of slurmdbd and slurmctld, each once."""
    nodes = (*cluster.with_role(Role.DBD), *cluster.controllers)
    return tuple({node.name: node for node in nodes}.values())


def _batches(names: Sequence[str], text: str) -> Iterator[tuple[str, ...]]:
    size = batch_size(text, len(names))
    for start in range(0, len(names), size):
        yield tuple(names[start : start + size])


def _repositories(
    facts: Mapping[str, NodeFacts], release: str, served: Mapping[str, Mapping[str, Mapping[str, object]]]
) -> tuple[dict[str, Mapping[str, object]], list[tuple[str, str]]]:
    repositories: dict[str, Mapping[str, object]] = {}
    missing: list[tuple[str, str]] = []
    for platform in sorted({node.platform for node in facts.values()}):
        try:
            repositories[platform] = choose_repository(served, "repository", release, platform)
        except RefusedError:
            what = f"the cluster's repository has no packages of Slurm {release} for {platform}"
            system = SYSTEMS.get(platform)
            build = f"`deepopsctl packages build slurm --release {release} --for {system}`"
            add = f"`deepopsctl packages add slurm --for {system} FILE...` if they were built elsewhere"
            missing.append((what, f"{build}, or {add}" if system else f"they can be for {' and '.join(SYSTEMS)} only"))
    versions = sorted({upstream(str(values["version"])) for values in repositories.values()})
    if len(versions) > 1:
        missing.append((f"the repository has {' and '.join(versions)} for different systems", "build the same version"))
    return repositories, missing


def _refusals_of_release(
    release: str, nodes: Sequence[Node], facts: Mapping[str, NodeFacts], record: Mapping[str, object]
) -> Iterator[tuple[str, str]]:
    if record and record.get("to") != release:
        yield (
            f"an upgrade of Slurm to {record.get('to')} is under way",
            f"`deepopsctl upgrade slurm --to {record.get('to')}` continues with it",
        )
        return
    names: dict[str, list[str]] = {}
    for node in nodes:
        for one in facts[node.name].releases:
            names.setdefault(one, []).append(node.name)
    if not names:
        yield "Slurm is on none of the nodes that answer", "`deepopsctl deploy slurm` installs it"
    for one, having in sorted(names.items()):
        if reason := upgrade_refusal(one, release):
            way = upgrade_path(one, release)
            between = ", ".join(way[1:-1])
            hint = (
                f"one after the other, from packages of each: {between} is in no suite of Debian, so "
                f"`deepopsctl packages build slurm --release {way[1]} --source TARBALL --sha256 SUM`, then "
                f"`deepopsctl upgrade slurm --to {way[1]}`"
                if between
                else "see the table of releases in docs/operate/packages.md"
            )
            yield f"{fold(having)}: {reason}", hint


def _refusals_of_settings(settings: Text, installed: str, release: str) -> Iterator[tuple[str, str]]:
    name = settings.get("ClusterName", "")
    if not _SAFE_NAME.fullmatch(name):
        yield f"ClusterName is {name!r}: slurmdbd {release} rejects it", "letters, digits, - and _ are safe"
    for removal in _removed(settings, installed, release):
        if removal.effect == "fatal":
            instead = f" ({removal.instead})" if removal.instead else ""
            yield (
                f"slurm.conf has {_shown(removal, settings)}: Slurm {removal.release} and later do not start with it",
                f"remove it from slurm_config in settings.yml{instead}, deploy, then upgrade",
            )


def _refusals_of_plugins(
    release: str, facts: Mapping[str, NodeFacts], repositories: Mapping[str, Mapping[str, object]]
) -> Iterator[tuple[str, str]]:
    """slurmd does not start with a plugin that plugstack.conf requires and that was built for another release.

    Pyxis of the cluster's own packages is replaced together with Slurm.
    """
    wrong: dict[tuple[str, str], list[str]] = {}
    for name, node in facts.items():
        is_replaced = has_pyxis(repositories.get(node.platform, {}))
        for plugin in node.plugins:
            path = str(plugin["path"])
            fits = release_of(str(plugin["version"])) in ("", release)
            is_packaged = path.startswith(PYXIS_PLUGINS)
            if plugin["required"] and not fits and not (is_packaged and is_replaced):
                built = f"{path}, which was built for Slurm {plugin['version']}"
                build = f"`deepopsctl packages build pyxis --release {release} --for {SYSTEMS.get(node.platform)}`"
                hint = build if is_packaged else "make the line in slurm_plugstack `optional`, and deploy"
                wrong.setdefault((built, hint), []).append(name)
    for (built, hint), names in wrong.items():
        yield f"{fold(names)}: plugstack.conf requires {built}", f"slurmd of {release} would not start: {hint}"


def _refusals_of_database(database: Mapping[str, object], host: str) -> Iterator[tuple[str, str]]:
    if database.get("problem"):
        yield f"{host}: {database['problem']}", "MariaDB has to run before the upgrade"
        return
    if database.get("isolation"):
        yield (
            f"{host}: MariaDB runs with innodb_snapshot_isolation=ON, which slurmdbd can't continue after",
            "`deepopsctl deploy slurm` sets it; a server of your own needs innodb_snapshot_isolation=OFF",
        )
    size, free = number(database.get("size_mb")), number(database.get("free_mb"))
    # a dump, and the tables once more while they are changed
    if free < 2 * size:
        yield f"{host}: the database has {size} MiB, and only {free} MiB are free", "free twice its size"


def _notes(
    facts: Mapping[str, NodeFacts], first: str, installed: str, release: str, silent: Sequence[str]
) -> Iterator[str]:
    if silent:
        yield f"{fold(silent)} does not answer: left out, a later `upgrade slurm --to {release}` includes it"
    settings = facts[first].settings if first in facts else {}
    for removal in _removed(settings, installed, release):
        if removal.effect != "fatal":
            instead = f"; {removal.instead}" if removal.instead else ""
            yield f"slurm.conf: {_shown(removal, settings)} is {removal.effect} since {removal.release}{instead}"
    if _RECONFIGURES in settings.get("SlurmctldParameters", ""):
        yield f"slurm.conf: SlurmctldParameters has {_RECONFIGURES}: nodes whose packages are new would follow at once"
    if "spank" in settings.get("PlugStackConfig", "").lower():
        yield "SPANK plugins have to be built again for the new release"


def _removed(settings: Text, installed: str, release: str) -> Iterator[Removal]:
    values = {key.lower(): value.lower() for key, value in settings.items()}
    for removal in REMOVALS:
        value = values.get(removal.key.lower())
        if value is None or not installed < removal.release <= release:
            continue
        if not removal.value or removal.value.lower() in value.split(","):
            yield removal


def _shown(removal: Removal, settings: Text) -> str:
    key = next(key for key in settings if key.lower() == removal.key.lower())
    return f"{key}={removal.value or settings[key]}"
