"""Each component on a node, compared with its last deploy and with the desired state."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from deepopsctl.model.cluster import Node, Role

# components that a deploy removes once they are no longer wanted, and how; others stay installed
REMOVED_BY = MappingProxyType({
    "storage": "`deepopsctl deploy storage` removes it, if cluster.yml has a `storage:` key (`storage: []` is enough)",
    "monitoring": "`deepopsctl deploy monitoring` removes it",
})  # fmt: skip


class Deploy(StrEnum):
    """State of a node, or of a component on it, compared with its last deploy."""

    IN_STEP = "in step"
    BEHIND = "behind"
    DRIFTED = "drifted"
    LEFT = "no longer wanted"
    NEVER = "not deployed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ComponentStatus:
    """One component on one node; `differences` lists what has changed since its deploy."""

    name: str
    deploy: Deploy
    differences: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()

    def as_object(self) -> dict[str, object]:
        """Its entry in `status --json`."""
        return {"deploy": str(self.deploy), "differences": list(self.differences)}


def parse_components(data: object) -> tuple[ComponentStatus, ...]:
    """The `components` of node_report, without those that are neither wanted nor installed."""
    if not isinstance(data, Mapping):
        return ()
    parsed = (_parse(str(name), entry) for name, entry in data.items() if isinstance(entry, Mapping))
    return tuple(component for component in parsed if component)


def _parse(name: str, data: Mapping[str, object]) -> ComponentStatus | None:
    if not data.get("wanted"):
        return ComponentStatus(name, Deploy.LEFT) if data.get("left") and name in REMOVED_BY else None
    differences = _texts(data, "differences")
    if not data.get("deployed"):
        deploy = Deploy.NEVER
    elif differences:
        deploy = Deploy.DRIFTED
    elif _texts(data, "missing") or _texts(data, "stale"):
        deploy = Deploy.BEHIND
    else:
        deploy = Deploy.IN_STEP
    return ComponentStatus(name, deploy, differences, _texts(data, "digests"))


def overall_deploy(components: Iterable[ComponentStatus], deployed: Collection[str]) -> Deploy:
    """The state of the whole node: the worst of its components. Components that are deployed nowhere don't count."""
    states = {part.deploy for part in components if part.deploy is not Deploy.NEVER or part.name in deployed}
    if states <= {Deploy.NEVER}:
        return Deploy.NEVER
    if Deploy.DRIFTED in states:
        return Deploy.DRIFTED
    return Deploy.IN_STEP if states == {Deploy.IN_STEP} else Deploy.BEHIND


def may_have(node: Node, component: str) -> bool:
    """Whether a node that does not answer may have a component."""
    return component != "nvidia" or node.gpus is not None or Role.LOGIN in node.roles


def _texts(data: Mapping[str, object], key: str) -> tuple[str, ...]:
    listed = data.get(key)
    return tuple(str(entry) for entry in listed) if isinstance(listed, list) else ()
