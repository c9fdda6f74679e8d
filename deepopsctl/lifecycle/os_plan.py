"""What `upgrade os` would do, from what the nodes answered: packages, reboots, and which nodes come when. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from deepopsctl.errors import ExitCode
from deepopsctl.lifecycle.rolling import Selection, select
from deepopsctl.model.cluster import Node, Role
from deepopsctl.model.json_objects import OsPlanParts, UpgradeNode
from deepopsctl.nodes.reboot import SERVICES
from deepopsctl.nodes.workflow import SILENT
from deepopsctl.slurm.state import SlurmState
from deepopsctl.text.answers import Fields
from deepopsctl.text.node_sets import fold

COMMAND = "upgrade os"
# {package: (version now, later version)}; a new package has no version now
Versions = Mapping[str, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class OsFacts:
    """What a node would get, and what it leaves (module os_upgrade)."""

    packages: Versions = field(default_factory=lambda: MappingProxyType({}))
    held: Versions = field(default_factory=lambda: MappingProxyType({}))
    left: Versions = field(default_factory=lambda: MappingProxyType({}))
    kept_back: tuple[str, ...] = ()
    reboot: str = ""
    kernel: str = ""
    installed_kernel: str = ""
    new_kernel: str = ""
    pending: tuple[str, ...] = ()
    conffiles: tuple[str, ...] = ()

    @property
    def is_current(self) -> bool:
        """Whether there is nothing to do."""
        return not self.packages and not self.reboot

    @property
    def will_reboot(self) -> str:
        """Why a reboot will be needed, as far as that is known before; '' where it is not."""
        return self.reboot or (f"kernel {self.new_kernel} is new" if self.new_kernel else "")

    @property
    def content(self) -> tuple[object, ...]:
        """What nodes have to have in common to be shown together."""
        parts = (self.packages, self.held, self.left)
        return (*(tuple(sorted(part.items())) for part in parts), self.kept_back, self.will_reboot)

    def document(self) -> UpgradeNode:
        """The JSON object of a node."""
        return {
            "packages": {name: list(versions) for name, versions in self.packages.items()},
            "held": {name: list(versions) for name, versions in self.held.items()},
            "left": {name: list(versions) for name, versions in self.left.items()},
            "kept_back": list(self.kept_back),
            "reboot": self.will_reboot,
        }


def parse_facts(answer: Mapping[str, object]) -> OsFacts:
    """The facts from the module's answer."""
    facts = Fields(answer)
    return facts.fill(OsFacts, **{key: _versions(facts.lists(key)) for key in ("packages", "held", "left")})


@dataclass(frozen=True, slots=True)
class OsPlan:
    """Compute nodes by what may be done with them, then the others, which are not rebooted, in their order."""

    facts: Mapping[str, OsFacts]
    compute: Selection
    others: tuple[str, ...]
    silent: Mapping[str, str]
    slurm: SlurmState

    @property
    def todo(self) -> tuple[str, ...]:
        """The nodes that something is done to."""
        return (*self.compute.begun, *self.compute.free, *self.others)

    @property
    def exit_code(self) -> ExitCode:
        """1 where nodes could not be queried, 4 where they only did not answer."""
        if not self.silent:
            return ExitCode.OK
        return ExitCode.UNREACHABLE if set(self.silent.values()) == {SILENT} else ExitCode.FAILED

    @property
    def idle(self) -> tuple[str, ...]:
        """The compute nodes that can be upgraded at once."""
        busy = self.slurm.busy
        return tuple(name for name in self._compute if name not in busy)

    @property
    def busy(self) -> tuple[str, ...]:
        """The compute nodes whose jobs have to end first."""
        busy = self.slurm.busy
        return tuple(name for name in self._compute if name in busy)

    @property
    def _compute(self) -> tuple[str, ...]:
        return (*self.compute.begun, *self.compute.free)

    @property
    def groups(self) -> Iterator[tuple[tuple[str, ...], OsFacts]]:
        """Nodes for which the same happens, together; those with nothing to do or to leave are not there."""
        names_by_content: dict[tuple[object, ...], list[str]] = {}
        for name, facts in self.facts.items():
            if any(facts.content):
                names_by_content.setdefault(facts.content, []).append(name)
        for names in names_by_content.values():
            yield tuple(names), self.facts[names[0]]

    def document(self) -> OsPlanParts:
        """The JSON object of `--check`."""
        jobs = self.slurm.jobs_on(self._compute)
        return {
            "nodes": {name: facts.document() for name, facts in self.facts.items()},
            "idle": list(self.idle),
            "busy": list(self.busy),
            "others": list(self.others),
            "left_alone": dict(self.compute.left_alone),
            "unreachable": dict(self.silent),
            "jobs": [{"id": job.id, "user": job.user, "nodes": list(job.nodes)} for job in jobs],
        }


def is_drained_for_it(node: Node) -> bool:
    """Whether the node is upgraded without jobs, and rebooted: a compute node that serves nothing to others."""
    return Role.COMPUTE in node.roles and not set(SERVICES) & set(node.roles)


def make_plan(
    nodes: Iterable[Node], facts: Mapping[str, OsFacts], failures: Mapping[str, str], slurm: SlurmState
) -> OsPlan:
    """The plan for what the nodes answered; `failures` says why others did not."""
    wanted = [node for node in nodes if node.name in facts]
    compute = [node.name for node in wanted if is_drained_for_it(node)]
    chosen = select(compute, slurm, COMMAND)
    others = [node for node in wanted if node.name not in compute and facts[node.name].packages]
    others.sort(key=lambda node: bool(set(SERVICES) & set(node.roles)))
    return OsPlan(
        facts,
        Selection(
            chosen.begun,
            tuple(name for name in chosen.free if not facts[name].is_current),
            {name: why for name, why in chosen.left_alone.items() if not facts[name].is_current},
        ),
        tuple(node.name for node in others),
        failures,
        slurm,
    )


def pending_sentences(facts: OsFacts, *, reboots: bool) -> Iterator[str]:
    """What a node needs, and `upgrade os` does not do; `reboots`: it is one of those that it reboots."""
    if facts.reboot and not reboots:
        yield f"a reboot is needed, and not done here: {facts.reboot}"
    if facts.pending and not reboots:
        yield f"{', '.join(facts.pending)} restarts in its new version at the next `deepopsctl deploy`"
    if facts.kept_back:
        yield f"{' '.join(facts.kept_back)} stays: apt would have to remove other packages for it"
    if facts.conffiles:
        yield f"edited files stay, their new versions are {' '.join(facts.conffiles)}"


def kernel_warnings(before: Mapping[str, OsFacts], after: Mapping[str, OsFacts]) -> Iterator[str]:
    """Nodes that rebooted, and run another kernel than the newest one that is installed."""
    names_by_kernels: dict[tuple[str, str], list[str]] = {}
    for name, facts in after.items():
        if before[name].installed_kernel not in ("", facts.kernel):
            names_by_kernels.setdefault((facts.kernel, before[name].installed_kernel), []).append(name)
    for (runs, there), names in names_by_kernels.items():
        yield f"{fold(names)} rebooted into kernel {runs}, and {there} is installed: its boot loader chose another"


def _versions(listed: Mapping[str, tuple[str, ...]]) -> Versions:
    return {name: (versions[0], versions[1]) for name, versions in listed.items() if len(versions) == 2}
