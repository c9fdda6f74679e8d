"""cluster.yml: read, check against its schema, and turn into a Cluster. The only user of pydantic."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from deepopsctl import values
from deepopsctl.draft import Draft, NodeEntry, PartitionEntry
from deepopsctl.model import Access, Cluster, Gpus, Partition
from deepopsctl.nodelist import shorten
from deepopsctl.problems import Problems, RefusedError
from deepopsctl.sourcetext import check_markers, read_source
from deepopsctl.yamltext import Document, Path, parse_yaml

SCHEMA = 1

T = TypeVar("T")
V = TypeVar("V")
S = TypeVar("S", bound="_Section")


def _read_boolean(value: object) -> object:
    words = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
    return words.get(value.lower(), value) if isinstance(value, str) else value


Boolean = Annotated[bool, BeforeValidator(_read_boolean)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _ClusterSection(_Section):
    name: str = ""
    user: str = ""
    port: str = ""
    key: str = ""
    jump_host: str = ""


class _GpusSection(_Section):
    type: str = ""
    count: str


class _NodeSection(_Section):
    names: str
    addresses: str = ""
    roles: list[str] = Field(min_length=1)
    port: str = ""
    gpus: _GpusSection | None = None
    features: list[str] = []
    slurm: dict[str, str] = {}


class _PartitionSection(_Section):
    name: str
    nodes: str
    default: Boolean = False
    max_time: str = ""
    options: dict[str, str] = {}


class _ClusterFile(_Section):
    schema_: Literal["1"] = Field(alias="schema")
    cluster: object = None
    nodes: list[object] = Field(min_length=1)
    partitions: list[object] = []


_MODELS: dict[str, type[_Section]] = {
    "": _ClusterFile, "cluster": _ClusterSection, "nodes": _NodeSection,
    "gpus": _GpusSection, "partitions": _PartitionSection,
}  # fmt: skip


def load_spec(path: pathlib.Path) -> Cluster:
    """The cluster that a cluster.yml describes; an InputError tells everything wrong with it."""
    problems = Problems()
    text = read_source(path, path.name, problems)
    problems.raise_if_any()
    return parse_spec(text or "", path.name)


def parse_spec(text: str, where: str) -> Cluster:
    """The cluster that the text of a cluster.yml describes; `where` names it in messages."""
    problems = Problems()
    draft = draft_spec(text, where, problems)
    return draft.finish()


def draft_spec(text: str, where: str, problems: Problems) -> Draft:
    """The machines and partitions of a cluster.yml, to be finished or to be added to."""
    draft = Draft(where, problems)
    check_markers(text, where, problems)
    document = parse_yaml(text, where, problems)
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


def _explain(fault: ErrorDetails, path: Path) -> tuple[str, str]:
    """A message and a hint in this project's words for a fault that pydantic found."""
    field, kind = _dotted(path), fault["type"]
    if kind == "extra_forbidden":
        section = next((part for part in reversed(path[:-1]) if isinstance(part, str)), "")
        known = [info.alias or name for name, info in _MODELS[section].model_fields.items()]
        return f"{field}: unknown key", values.suggest(str(path[-1]), known)
    if path == ("schema",):
        return (
            f"schema: {'is missing' if kind == 'missing' else 'this version reads schema 1 only'}",
            "write `schema: 1`",
        )
    if kind == "missing":
        return f"{field}: is missing", "every entry needs it: see docs/reference/cluster-yml.md"
    hints = {
        "string_type": ("must be one value, not a list or mapping", "write KEY: VALUE"),
        "list_type": ("must be a list", "write it in brackets: [a, b]"),
        "dict_type": ("must be keys with values", "write {KEY: VALUE}"),
        "model_type": ("must be keys with values", "write {KEY: VALUE, ...}"),
        "too_short": ("is empty", "give at least one"),
        "bool_type": ("must be true or false", "write true or false"),
        "bool_parsing": ("must be true or false", "write true or false"),
    }
    message, hint = hints.get(kind, (fault["msg"].lower(), "see docs/reference/cluster-yml.md"))
    return f"{field}: {message}", hint


def _dotted(path: Path) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
    return shorten(text) or "the file"


def _as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _node_options(options: Mapping[str, str]) -> Mapping[str, str]:
    return values.check_slurm_options(options, values.OWNED_NODE_KEYS)


def _partition_options(options: Mapping[str, str]) -> Mapping[str, str]:
    return values.check_slurm_options(options, values.OWNED_PARTITION_KEYS)


class _Reader:
    """Checks single values and fills a Draft."""

    def __init__(self, document: Document, where: str, problems: Problems, draft: Draft) -> None:
        self.document = document
        self.where = where
        self.problems = problems
        self.draft = draft

    def read(self) -> None:
        """Read section by section: a fault in one must not hide the faults of the others."""
        content = _without_empty(self.document.value)
        top = self._fit(_ClusterFile, content, ())
        whole = content if isinstance(content, dict) else {}
        self._cluster(self._fit(_ClusterSection, whole.get("cluster", {}), ("cluster",)))
        nodes, partitions = (_as_list(whole.get(key)) for key in ("nodes", "partitions"))
        self.draft.incomplete = top is None and not nodes
        for index, item in enumerate(nodes):
            self._node(self._fit(_NodeSection, item, ("nodes", index)), ("nodes", index))
        for index, item in enumerate(partitions):
            self._partition(self._fit(_PartitionSection, item, ("partitions", index)), ("partitions", index))

    def _fit(self, model: type[S], content: object, path: Path) -> S | None:
        try:
            return model.model_validate(content)
        except ValidationError as error:
            for fault in error.errors(include_url=False):
                place = (*path, *(part for part in fault["loc"] if part != "[key]"))
                self.problems.add(f"{self.where}:{self.document.line(place)}", *_explain(fault, place))
        return None

    def _cluster(self, section: _ClusterSection | None) -> None:
        if section is None:
            return
        if section.name:
            self.draft.name = self._value(("cluster", "name"), values.check_cluster_name, section.name, "")
        self.draft.access = Access(
            user=self._value(("cluster", "user"), values.check_user, section.user, ""),
            port=self._value(("cluster", "port"), values.parse_port, section.port, 0),
            key=self._value(("cluster", "key"), values.check_key, section.key, ""),
            jump_host=self._value(("cluster", "jump_host"), values.check_jump_host, section.jump_host, ""),
        )

    def _node(self, node: _NodeSection | None, path: Path) -> None:
        if node is None:
            self.draft.incomplete = True
            return
        before = len(self.problems)
        roles = [self._value((*path, "roles"), values.parse_role, text, None) for text in node.roles]
        features = [self._value((*path, "features"), values.check_feature, text, "") for text in node.features]
        entry = NodeEntry(
            where=self._at(path),
            within=_dotted(path),
            names=node.names,
            addresses=node.addresses,
            roles=frozenset(role for role in roles if role),
            port=self._value((*path, "port"), values.parse_port, node.port, 0),
            gpus=self._gpus(node, path),
            features=tuple(features),
            slurm=self._value((*path, "slurm"), _node_options, node.slurm, {}),
        )
        self.draft.incomplete = self.draft.incomplete or len(self.problems) > before
        self.draft.add(entry)

    def _gpus(self, node: _NodeSection, path: Path) -> Gpus | None:
        if node.gpus is None:
            return None
        kind = node.gpus.type
        return self._value((*path, "gpus"), lambda count: values.parse_gpus(kind, count), node.gpus.count, None)

    def _partition(self, section: _PartitionSection | None, path: Path) -> None:
        if section is None:
            return
        partition = Partition(
            name=self._value((*path, "name"), values.check_partition_name, section.name, section.name),
            nodes=(),
            default=section.default,
            max_time=self._value((*path, "max_time"), values.check_max_time, section.max_time, ""),
            options=self._value((*path, "options"), _partition_options, section.options, {}),
        )
        self.draft.partitions.append(PartitionEntry(self._at(path), _dotted(path), partition, section.nodes))

    def _value(self, path: Path, check: Callable[[V], T], given: V, instead: T) -> T:
        try:
            return check(given)
        except RefusedError as refusal:
            self.problems.refuse(self._at(path), _dotted(path), refusal)
            return instead

    def _at(self, path: Path) -> str:
        return f"{self.where}:{self.document.line(path)}"
