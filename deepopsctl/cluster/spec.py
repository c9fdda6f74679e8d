"""cluster.yml: read, check against its schema, and turn into a Cluster."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache

from deepopsctl.cluster.builder import Draft, MaintenanceEntry, NodeEntry, PartitionEntry
from deepopsctl.content import components
from deepopsctl.environment.spaces import read_spaces
from deepopsctl.gpus import spec
from deepopsctl.model.cluster import Access, Cluster, Gpus, JobDirectories, Maintenance, Partition, Role
from deepopsctl.model.storage import NETWORKED
from deepopsctl.policy import maintenance
from deepopsctl.policy.builder import Place
from deepopsctl.policy.prepared import PURPOSES, prepared, qos_of
from deepopsctl.policy.spec import PolicyReader
from deepopsctl.policy.values import check_choice
from deepopsctl.slurm import job_hooks
from deepopsctl.storage.spec import StorageReader
from deepopsctl.text import values
from deepopsctl.text.answers import items, mapping
from deepopsctl.text.problems import Problems, RefusedError
from deepopsctl.text.sections import (
    ClusterFile,
    ClusterSection,
    GpusSection,
    JobDirectoriesSection,
    MaintenanceSection,
    NodeSection,
    PartitionSection,
    SectionReader,
    dotted,
)
from deepopsctl.text.source import check_markers, read_source
from deepopsctl.text.yaml_reader import Document, Path, parse_yaml

SCHEMA = 1


def load_spec(path: pathlib.Path) -> Cluster:
    """The cluster that a cluster.yml describes; an InputError reports everything wrong with it."""
    problems = Problems()
    text = read_source(path, path.name, problems)
    problems.raise_if_any()
    return _known_spec(text or "", path.name)


def parse_spec(text: str, where: str) -> Cluster:
    """The cluster that the text of a cluster.yml describes; `where` names it in messages."""
    problems = Problems()
    draft = draft_spec(text, where, problems)
    return draft.finish()


# a command reads it several times, which for thousands of nodes are seconds; what is wrong is reported each time
_known_spec = lru_cache(maxsize=1)(parse_spec)


def draft_spec(text: str, where: str, problems: Problems) -> Draft:
    """The nodes and partitions of a cluster.yml, as a draft."""
    check_markers(text, where, problems)
    return draft_document(parse_yaml(text, where, problems), where, problems)


def draft_document(document: Document | None, where: str, problems: Problems) -> Draft:
    """Like `draft_spec` for a parsed document; None if it could not be read."""
    draft = Draft(where, problems)
    if document is None:
        draft.incomplete = True
    elif isinstance(document.value, dict):
        _Reader(document, where, problems, draft).read()
    else:
        problems.add(f"{where}:1", "no cluster.yml: keys are expected", "start with `schema: 1` and `nodes:`")
        draft.incomplete = True
    return draft


def _without_empty(value: object) -> object:
    """Leave out keys without a value: they mean the same as no key."""
    if isinstance(value, dict):
        return {key: _without_empty(item) for key, item in value.items() if item is not None}
    return [_without_empty(item) for item in value] if isinstance(value, list) else value


def _node_options(options: Mapping[str, str]) -> Mapping[str, str]:
    return values.check_slurm_options(options, values.OWNED_NODE_KEYS)


def _partition_options(options: Mapping[str, str]) -> Mapping[str, str]:
    return values.check_slurm_options(options, values.OWNED_PARTITION_KEYS)


def _purpose(text: str) -> str:
    return check_choice(text, PURPOSES) if text else ""


class _Reader(SectionReader):
    """Checks single values and fills a Draft."""

    def __init__(self, document: Document, where: str, problems: Problems, draft: Draft) -> None:
        super().__init__(document, where, problems)
        self.draft = draft

    def read(self) -> None:
        """Read section by section, so that a problem in one does not hide those of others."""
        content = _without_empty(self.document.value)
        top = self.fit(ClusterFile, content, ())
        whole = mapping(content)
        self._cluster(self.fit(ClusterSection, whole.get("cluster", {}), ("cluster",)))
        nodes, partitions = (items(whole.get(key)) for key in ("nodes", "partitions"))
        self.draft.incomplete = top is None and not nodes
        for index, item in enumerate(nodes):
            self._node(self.fit(NodeSection, item, ("nodes", index)), ("nodes", index))
        for index, item in enumerate(partitions):
            self._partition(self.fit(PartitionSection, item, ("partitions", index)), ("partitions", index))
        for index, item in enumerate(items(whole.get("maintenance"))):
            self._maintenance(self.fit(MaintenanceSection, item, ("maintenance", index)), ("maintenance", index))
        PolicyReader(self, self.draft.policy).read(whole)
        StorageReader(self, self.draft.storage).read(whole)
        self.draft.spaces = read_spaces(self, whole, [entry.mount for entry in self.draft.storage.entries])
        if "job_directories" in whole:
            self._job_directories(self.fit(JobDirectoriesSection, whole["job_directories"], ("job_directories",)))
        self.draft.nvlink.read(self, whole)
        if top is not None:
            self.draft.slurm_state = (self.at(("slurm_state",)), top.slurm_state)
        if top is not None and top.components is not None:
            self._components(top.components)

    def _cluster(self, section: ClusterSection | None) -> None:
        if section is None:
            return
        if section.name:
            self.draft.name = self.value(("cluster", "name"), values.check_cluster_name, section.name, "")
        self.draft.protected = section.protected
        self.draft.access = Access(
            user=self.value(("cluster", "user"), values.check_user, section.user, ""),
            port=self.value(("cluster", "port"), values.parse_port, section.port, 0),
            key=self.value(("cluster", "key"), values.check_key, section.key, ""),
            jump_host=self.value(("cluster", "jump_host"), values.check_jump_host, section.jump_host, ""),
            login_name=self.value(("cluster", "login_name"), values.check_login_name, section.login_name, ""),
        )

    def _components(self, names: Sequence[str]) -> None:
        known = components()
        if not names:
            refusal = RefusedError("is empty", f"name what the cluster has ({', '.join(known)}), or leave it out")
            self.problems.refuse(self.at(("components",)), "components", refusal)
        for index, name in enumerate(names):
            path: Path = ("components", index)
            if name not in known:
                refusal = RefusedError(f"there is no component {name!r}", values.suggest(name.lower(), known))
                self.problems.refuse(self.at(path), dotted(path), refusal)
            elif name in names[:index]:
                refusal = RefusedError(f"{name} is listed twice", "list every component once")
                self.problems.refuse(self.at(path), dotted(path), refusal)
        self.draft.components = tuple(name for name in known if name in names)

    def _job_directories(self, section: JobDirectoriesSection | None) -> None:
        if section is None:
            return
        defaults = JobDirectories()
        method = self._of_jobs("method", job_hooks.check_method, section.method or defaults.method, defaults.method)
        for name in ("var_tmp", "shm"):
            if method == "prolog" and getattr(section, name) is not None:
                refusal = RefusedError("says what method: namespace makes private", "leave it out, or leave out method")
                path: Path = ("job_directories", name)
                self.problems.refuse(self.at(path), dotted(path), refusal)
        space = self._space(section.space) if section.space is not None else ()
        self.draft.job_directories = JobDirectories(
            base=self._of_jobs("base", self._base, section.base or defaults.base, defaults.base),
            method=method,
            var_tmp=bool(section.var_tmp),
            shm=defaults.shm if section.shm is None else section.shm,
            space=space,
            share=self._of_jobs("share", lambda text: job_hooks.check_share(text, space), section.share or "", ""),
        )
        if section.share and section.space is None:
            path = ("job_directories", "share")
            self.problems.refuse(self.at(path), dotted(path), RefusedError("is a part of `space`", "set space, too"))

    def _space(self, written: object) -> tuple[tuple[str, str], ...]:
        """`space: 800G`, or a size for each node set: every compute node is in one of them."""
        compute = [node.name for node in self.draft.nodes.values() if Role.COMPUTE in node.roles]
        return self.value(("job_directories", "space"), lambda raw: job_hooks.parse_space(raw, compute), written, ())

    def _of_jobs(self, name: str, check: Callable[[str], str], raw: str, instead: str) -> str:
        return self.value(("job_directories", name), check, raw, instead)

    def _base(self, text: str) -> str:
        """The base of job directories: on a local disk, not on a shared mount."""
        mounts = [entry.mount for entry in self.draft.storage.entries]
        return job_hooks.check_base(text, {mount.path: mount.type.value for mount in mounts
                                                if mount.type in NETWORKED})  # fmt: skip

    def _node(self, node: NodeSection | None, path: Path) -> None:
        if node is None:
            self.draft.incomplete = True
            return
        before = len(self.problems)
        roles = [self.value((*path, "roles"), values.parse_role, text, None) for text in node.roles]
        features = [self.value((*path, "features"), values.check_feature, text, "") for text in node.features]
        entry = NodeEntry(
            where=self.at(path),
            within=dotted(path),
            names=node.names,
            addresses=node.addresses,
            roles=frozenset(role for role in roles if role),
            port=self.value((*path, "port"), values.parse_port, node.port, 0),
            gpus=self._gpus(node, path),
            features=tuple(features),
            slurm=self.value((*path, "slurm"), _node_options, node.slurm, {}),
        )
        self.draft.incomplete = self.draft.incomplete or len(self.problems) > before
        self.draft.add(entry)

    def _gpus(self, node: NodeSection, path: Path) -> Gpus | None:
        """The GPUs of an entry: one group, or a list."""
        autodetect = self.value((*path, "autodetect"), spec.parse_autodetect, node.autodetect, "")
        several = isinstance(node.gpus, list)
        entries = items(node.gpus) if several else [node.gpus] * (node.gpus is not None)
        if not entries and (several or autodetect):
            what = RefusedError("is empty" if several else "is given without gpus", "say which GPUs the nodes have")
            key = "gpus" if several else "autodetect"
            self.problems.refuse(self.at((*path, key)), dotted((*path, key)), what)
        groups = []
        for index, entry in enumerate(entries):
            place = (*path, "gpus", index) if several else (*path, "gpus")
            section = self.fit(GpusSection, entry, place)
            if section is None:
                return None
            groups.append(spec.WrittenGroup(place, **dict(section)))
        if not groups:
            return None
        return spec.read_gpus(
            groups, autodetect, lambda place, refusal: self.problems.refuse(self.at(place), dotted(place), refusal)
        )

    def _maintenance(self, section: MaintenanceSection | None, path: Path) -> None:
        if section is None:
            return
        entry = Maintenance(
            name=self.value((*path, "name"), maintenance.check_name, section.name, section.name),
            start=self.value((*path, "start"), maintenance.check_start, section.start, datetime.min),
            minutes=self.value((*path, "duration"), maintenance.check_duration, section.duration, 0),
            nodes=(),
            repeat=self.value((*path, "repeat"), maintenance.check_repeat, section.repeat, ""),
        )
        self.draft.maintenance.append(MaintenanceEntry(self.at(path), dotted(path), entry, section.nodes))

    def _partition(self, section: PartitionSection | None, path: Path) -> None:
        if section is None:
            return
        partition = Partition(
            name=self.value((*path, "name"), values.check_partition_name, section.name, section.name),
            nodes=(),
            default=section.default,
            max_time=self.value((*path, "max_time"), values.check_max_time, section.max_time, ""),
            options=self.value((*path, "options"), _partition_options, section.options, {}),
            prepared=self.value((*path, "prepared"), _purpose, section.prepared, ""),
        )
        partition = prepared(partition)
        self.draft.partitions.append(PartitionEntry(self.at(path), dotted(path), partition, section.nodes))
        qos = qos_of(partition)
        if qos is not None:
            self.draft.policy.prepared.append((Place(self.at(path), dotted(path)), qos))
