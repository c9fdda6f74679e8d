"""The user guide of one site: its names, partitions, limits and file systems, and examples with these values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from deepopsctl.gpus.gres import gres_counts, gres_value
from deepopsctl.gpus.reference_units import units_of
from deepopsctl.model.cluster import Cluster, Node, Partition, Role
from deepopsctl.model.people import People
from deepopsctl.model.spaces import NAMES, Owner
from deepopsctl.model.storage import Mount, StorageType
from deepopsctl.node_programs._shared.slurm_output import clock, minutes
from deepopsctl.node_programs.commands.disk_usage.table import size
from deepopsctl.slurm.conf import RESERVE_PERCENT, for_jobs
from deepopsctl.slurm.hardware import NodeHardware
from deepopsctl.storage.purge import purge_of
from deepopsctl.storage.quota import Limits, quota_of
from deepopsctl.text.node_sets import fold_in_order
from deepopsctl.text.pages import slug

if TYPE_CHECKING:
    from jinja2 import Environment

_DAY = 86_400
# of the example job, where the nodes have as much
_CPUS, _MEMORY_GIB = 4, 16
# where the template has the list of sections
_CONTENTS = "@CONTENTS@"


@dataclass(frozen=True, slots=True)
class Nodes:
    """Identical nodes: how many, and what a job can have of one of them (memory in GiB; 0 for not detected yet)."""

    count: int
    gpus: str
    cpus: int
    memory_gib: int


@dataclass(frozen=True, slots=True)
class Request:
    """What the example job asks for: as much as its partition's nodes all have; little where they are not `known`."""

    cpus: int
    memory_gib: int
    time: str
    known: bool


@dataclass(frozen=True, slots=True)
class Space:
    """One file system: a user's directory, its variable, where it is mounted, limits, and when files are deleted."""

    path: str
    variable: str
    where: str
    limits: str
    purge: str


def render_markdown(
    cluster: Cluster,
    hardware: Mapping[str, NodeHardware],
    ssh: str,
    modules: Sequence[str] = (),
    reserve_percent: int = RESERVE_PERCENT,
    containers: Sequence[str] = (),
    contact: str = "",
) -> str:
    """The guide as Markdown; `ssh` is a configuration for its users, `modules` are those that the site has.

    `contact` is whom users ask, `containers` what starts containers in jobs, `reserve_percent` the share of the memory
    that Slurm does not give to jobs.
    """
    partition = next((each for each in cluster.partitions if each.default), cluster.partitions[0])
    gpu_partition = next((each for each in (partition, *cluster.partitions) if _gpu_types(cluster, each)), None)
    with_environment = cluster.components is not None and "environment" in cluster.components
    text = (
        _templates()
        .get_template("user-guide.md.j2")
        .render(
            contents=_CONTENTS,
            contact=contact,
            cluster=cluster,
            ssh=ssh.strip(),
            login=cluster.access.login_name or _login_nodes(cluster)[0].name,
            gateway=cluster.name if cluster.access.login_name else _login_nodes(cluster)[0].name,
            login_nodes=[node.name for node in _login_nodes(cluster)],
            partitions=[(each, list(_nodes(cluster, each, hardware, reserve_percent))) for each in cluster.partitions],
            partition=partition,
            gpu_type=_gpu_types(cluster, gpu_partition)[0] if gpu_partition else "",
            gpu_partition=gpu_partition,
            request=_request(cluster, gpu_partition or partition, hardware, reserve_percent),
            units=_units(cluster),
            limits=[(qos.name, qos.limits) for qos in cluster.policy.qos if qos.limits],
            accounts=_accounts(cluster, cluster.people),
            spaces=[_space(cluster, mount) for mount in cluster.storage if mount.type is not StorageType.TMPFS],
            environment=with_environment,
            modules=modules,
            containers=containers,
            monitoring=cluster.components is not None and "monitoring" in cluster.components,
        )
    )
    titles = re.findall(r"^## (.+)$", text, re.MULTILINE)
    return text.replace(_CONTENTS, "\n".join(f"- [{title}](#{slug(title)})" for title in titles))


def first_script(markdown: str) -> str:
    """The first job of the guide, as users write it to a file."""
    return markdown.partition("```bash\n")[2].partition("```")[0]


def render_html(cluster: Cluster, markdown: str) -> str:
    """The guide as one self-contained page."""
    from markdown_it import MarkdownIt

    # cluster.yml's texts are not HTML
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    content = re.sub(
        r"<h2>(.*?)</h2>", lambda match: f'<h2 id="{slug(match[1])}">{match[1]}</h2>', parser.render(markdown)
    )
    return _templates().get_template("user-guide.html.j2").render(name=cluster.name, content=content)


@cache
def _templates() -> Environment:
    from jinja2 import DictLoader, Environment, StrictUndefined, select_autoescape

    directory = files(__package__) / "templates"
    texts = {each.name: each.read_text(encoding="utf-8") for each in directory.iterdir() if each.name.endswith(".j2")}
    return Environment(
        loader=DictLoader(texts), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True, autoescape=select_autoescape(["html.j2"], default=False),
    )  # fmt: skip


def _login_nodes(cluster: Cluster) -> tuple[Node, ...]:
    return cluster.with_role(Role.LOGIN) or cluster.controllers[:1]


def _members(cluster: Cluster, partition: Partition) -> Iterator[Node]:
    names = frozenset(partition.nodes)
    return (node for node in cluster.compute if node.name in names)


def _gpu_types(cluster: Cluster, partition: Partition | None = None) -> list[str]:
    nodes = cluster.compute if partition is None else _members(cluster, partition)
    types = {name: None for node in nodes if node.gpus for name in gres_counts(node.gpus)}
    return [name for name in types if name]


def _nodes(
    cluster: Cluster, partition: Partition, hardware: Mapping[str, NodeHardware], reserve_percent: int
) -> Iterator[Nodes]:
    groups: dict[tuple[str, int, int], int] = {}
    for node in _members(cluster, partition):
        known = hardware.get(node.name)
        gpus = gres_value(node.gpus).replace("gpu:", "") if node.gpus else ""
        cpus, memory = for_jobs(known, node.slurm, reserve_percent) if known else (0, 0)
        shape = (gpus, cpus, memory // 1024)
        groups[shape] = groups.get(shape, 0) + 1
    for (gpus, cpus, memory), count in groups.items():
        yield Nodes(count, gpus, cpus, memory)


def _request(
    cluster: Cluster, partition: Partition, hardware: Mapping[str, NodeHardware], reserve_percent: int
) -> Request:
    known = [each for each in _nodes(cluster, partition, hardware, reserve_percent) if each.cpus]
    hour = 60
    limit = minutes(partition.max_time)
    # what every node has, where one of them was not detected yet
    is_known = bool(known) and len(known) == len(list(_nodes(cluster, partition, hardware, reserve_percent)))
    return Request(
        cpus=min(_CPUS, *(each.cpus for each in known)) if is_known else 1,
        memory_gib=max(1, min(_MEMORY_GIB, *(each.memory_gib for each in known))) if is_known else 1,
        time="01:00:00" if limit is None else clock(min(hour, limit)),
        known=is_known,
    )


def _units(cluster: Cluster) -> list[tuple[str, str]]:
    billing = cluster.policy.billing
    return [] if billing is None else [(name, f"{units_of(name, billing.gpus):.4g}") for name in _gpu_types(cluster)]


def _accounts(cluster: Cluster, people: People | None) -> list[str]:
    """Accounts that jobs are charged to; the people of a site are not listed."""
    charged = {user.account for user in cluster.policy.all_users()}
    declared = [account.name for account in cluster.policy.accounts if account.name in charged]
    return declared + [group.name for group in (people.groups if people else ())]


def _space(cluster: Cluster, mount: Mount) -> Space:
    everywhere = {node.name for node in cluster.nodes} - {mount.server} <= set(mount.nodes)
    where = "all nodes" if everywhere else fold_in_order(list(mount.nodes))
    quota, purge = quota_of(mount), purge_of(mount)
    deletes = purge is not None and purge.settings["mode"] == "delete"
    space = next((each for each in cluster.spaces if each.storage == mount.name and each.name != "home"), None)
    return Space(
        path=f"{mount.path}/{'GROUP' if space.by is Owner.GROUP else 'YOUR-NAME'}" if space else mount.path,
        variable=NAMES[space.name].variable if space else "",
        where=where,
        limits=_limits(quota.default) if quota else "",
        purge=f"unused for {int(str(purge.settings['age'])) // _DAY} days" if purge and deletes else "",
    )


def _limits(limits: Limits) -> str:
    parts = [size(limits.space) if limits.space else "", f"{limits.files:,} files" if limits.files else ""]
    return ", ".join(filter(None, parts))
