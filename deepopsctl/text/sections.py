"""The sections of cluster.yml and people.yml as pydantic models, and messages for errors. The only user of pydantic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import ErrorDetails

from deepopsctl.text import values
from deepopsctl.text.node_sets import shorten
from deepopsctl.text.problems import Problems, RefusedError
from deepopsctl.text.yaml_reader import Document, Path

T = TypeVar("T")
V = TypeVar("V")
S = TypeVar("S", bound="Section")
_NO_KEYS: Mapping[type[Section], Mapping[str, object]] = MappingProxyType({})


_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def _read_boolean(value: object) -> object:
    return _BOOLEANS.get(value.lower(), value) if isinstance(value, str) else value


# an editor reads `yes` as a text
Boolean = Annotated[bool, BeforeValidator(_read_boolean), WithJsonSchema({"enum": [True, False, *_BOOLEANS]})]


class Section(BaseModel):
    """A mapping of cluster.yml: no key but its own."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


@dataclass(frozen=True, slots=True)
class Holds:
    """For the JSON Schema: what a value holds that is read apart, so that an error in one entry hides no other.

    In `form`: one section, a list of them, or a mapping of names to them.
    """

    section: type[Section]
    form: Literal["one", "list", "one or list", "mapping"] = "one"


class ClusterSection(Section):
    """`cluster`."""

    name: str = ""
    user: str = ""
    port: str = ""
    key: str = ""
    jump_host: str = ""
    login_name: str = ""
    protected: Boolean = False


class GpusSection(Section):
    """One entry of `gpus`; gpus.spec reads the values that are objects here."""

    type: str = ""
    count: str
    mig: object = None
    files: object = None
    cores: object = None
    links: object = None


class NodeSection(Section):
    """One of `nodes`."""

    names: str
    addresses: str = ""
    roles: list[str] = Field(min_length=1)
    port: str = ""
    gpus: Annotated[object, Holds(GpusSection, "one or list")] = None
    autodetect: str = ""
    features: list[str] = []
    slurm: dict[str, str] = {}


class PartitionSection(Section):
    """One of `partitions`."""

    name: str
    nodes: str
    default: Boolean = False
    max_time: str = ""
    prepared: str = ""
    options: dict[str, str] = {}


class QosSection(Section):
    """One of `qos`."""

    name: str
    priority: str = ""
    preempts: list[str] = []
    preempt_mode: str = ""
    grace_time: str = ""
    exempt_time: str = ""
    usage_factor: str = ""
    flags: list[str] = []
    limits: dict[str, str] = {}


class AccountSection(Section):
    """One of `accounts`."""

    name: str
    parent: str = "root"
    description: str = ""
    fairshare: str = ""
    qos: list[str] = []
    default_qos: str = ""
    limits: dict[str, str] = {}
    users: list[str] = []


class UserSection(Section):
    """One of `users`: some people in one account."""

    names: list[str] = Field(min_length=1)
    account: str
    default: Boolean = False
    fairshare: str = ""
    qos: list[str] = []
    default_qos: str = ""
    limits: dict[str, str] = {}


class PrioritySection(Section):
    """`priority`."""

    weights: dict[str, str] = {}
    tres_weights: str = ""
    decay_half_life: str = ""
    usage_reset: str = ""
    max_age: str = ""
    favor_small: Boolean = False


class PreemptionSection(Section):
    """`preemption`."""

    by: str
    mode: str = "requeue"
    exempt_time: str = ""


class BillingSection(Section):
    """`billing`."""

    gpus: dict[str, str] = {}


class MaintenanceSection(Section):
    """One of `maintenance`."""

    name: str
    start: str
    duration: str
    nodes: str = "all"
    repeat: str = ""


class NvlinkDomainSection(Section):
    """One of `nvlink_domains`."""

    name: str
    nodes: str


class StorageSection(Section):
    """One of `storage`; the mappings that belong to its type are read by the type."""

    name: str
    type: str
    path: str
    source: str = ""
    nodes: str = ""
    options: list[str] = []
    required: Boolean = False
    automount: Boolean = False
    automount_idle: str = ""
    user_writable: str = ""


class SpaceSection(Section):
    """One of `spaces`."""

    storage: str
    by: str = ""


class JobDirectoriesSection(Section):
    """`job_directories`."""

    base: str = ""
    method: str = ""
    var_tmp: Boolean | None = None
    shm: Boolean | None = None
    space: object = None
    share: str = ""


class GroupSection(Section):
    """One of `groups` of people.yml."""

    name: str
    gid: str
    pi: str = ""
    start: str = ""
    end: str = ""
    shares: str = ""


class PersonSection(Section):
    """One of `people` of people.yml."""

    name: str
    uid: str = ""
    full_name: str = ""
    mail: str = ""
    groups: list[str] = Field(min_length=1)
    keys: list[str] = []
    shell: str = ""
    expires: str = ""
    sponsor: str = ""


class DirectoryAccountSection(Section):
    """One of `accounts` of `directory` of people.yml."""

    group: str
    account: str
    shares: str = ""


class DirectorySection(Section):
    """`directory` of people.yml."""

    servers: list[str] = Field(min_length=1)
    base: str
    ca: str
    schema_: str = Field("", alias="schema")
    bind_dn: str = ""
    ids: str = ""
    access_filter: str = ""
    access_groups: list[str] = []
    ssh_keys: Boolean = False
    passwords: Boolean = False
    accounts: list[DirectoryAccountSection] = []


class PeopleFile(Section):
    """The whole people.yml."""

    schema_: Literal["1"] = Field(alias="schema")
    first_id: str = ""
    directory: Annotated[object, Holds(DirectorySection)] = None
    groups: Annotated[list[object], Holds(GroupSection, "list")] = []
    people: Annotated[list[object], Holds(PersonSection, "list")] = []


class ClusterFile(Section):
    """The whole file."""

    schema_: Literal["1"] = Field(alias="schema")
    cluster: Annotated[object, Holds(ClusterSection)] = None
    nodes: Annotated[list[object], Holds(NodeSection, "list")] = Field(min_length=1)
    partitions: Annotated[list[object], Holds(PartitionSection, "list")] = []
    qos: Annotated[list[object], Holds(QosSection, "list")] = []
    accounts: Annotated[list[object], Holds(AccountSection, "list")] = []
    users: Annotated[list[object], Holds(UserSection, "list")] = []
    priority: Annotated[object, Holds(PrioritySection)] = None
    preemption: Annotated[object, Holds(PreemptionSection)] = None
    billing: Annotated[object, Holds(BillingSection)] = None
    maintenance: Annotated[list[object], Holds(MaintenanceSection, "list")] = []
    storage: Annotated[list[object], Holds(StorageSection, "list")] = []
    spaces: Annotated[object, Holds(SpaceSection, "mapping")] = None
    job_directories: Annotated[object, Holds(JobDirectoriesSection)] = None
    slurm_state: str = ""
    components: list[str] | None = None
    nvlink_domains: Annotated[list[object], Holds(NvlinkDomainSection, "list")] = []


class _OfYaml(GenerateJsonSchema):
    """As people write YAML: a number stands where a text is expected, and `schema: 1` for `"1"`."""

    def str_schema(self, schema: Any) -> dict[str, Any]:
        """The reader takes every plain value as text."""
        del schema
        return {"type": ["string", "number", "boolean"]}

    def literal_schema(self, schema: Any) -> dict[str, Any]:
        """As above."""
        texts = [str(value) for value in schema["expected"]]
        return {"enum": [*map(int, filter(str.isdigit, texts)), *texts]}


def json_schema(model: type[Section], extra: Mapping[type[Section], Mapping[str, object]] = _NO_KEYS) -> dict[str, Any]:
    """The JSON Schema of a section and all sections in it; `extra` has schemas of keys that are read elsewhere."""
    schema = model.model_json_schema(schema_generator=_OfYaml)
    for part in (schema, *schema.get("$defs", {}).values()):
        # an editor would show the class's name
        part.pop("title", None)
        part.pop("description", None)
        for entry in part.get("properties", {}).values():
            entry.pop("title", None)
            if entry.get("default") in ("", None, [], {}):
                entry.pop("default", None)
    properties = schema["properties"]
    for name, info in model.model_fields.items():
        for held in (each for each in info.metadata if isinstance(each, Holds)):
            form = _form(held, json_schema(held.section, extra))
            properties[info.alias or name] = {**form, **({"minItems": 1} if info.is_required() else {})}
    properties.update(extra.get(model, {}))
    return schema


def _form(held: Holds, one: dict[str, Any]) -> dict[str, Any]:
    listed = {"type": "array", "items": one}
    if held.form == "mapping":
        return {"type": "object", "additionalProperties": one}
    if held.form == "one or list":
        return {"anyOf": [one, listed]}
    return listed if held.form == "list" else one


def _keys(model: type[Section], within: Path) -> list[str]:
    """The keys that a section has, or one of the sections inside it."""
    for part in within:
        # a name that a user chose (`users: {alice: ...}`) leads to no other section
        if isinstance(part, str) and part in model.model_fields:
            inner: list[Any] = [model.model_fields[part].annotation]
            while inner and not (isinstance(inner[0], type) and issubclass(inner[0], Section)):
                inner = [*get_args(inner[0]), *inner[1:]]
            model = inner[0] if inner else Section
    return [info.alias or name for name, info in model.model_fields.items()]


def _explain(fault: ErrorDetails, path: Path) -> tuple[str, str]:
    """The message and hint for an error that pydantic reports, except for an unknown key."""
    field, fault_type = dotted(path), fault["type"]
    if path == ("schema",):
        return (
            f"schema: {'is missing' if fault_type == 'missing' else 'this version reads schema 1 only'}",
            "write `schema: 1`",
        )
    if fault_type == "missing":
        return f"{field}: is missing", "every entry needs it: see docs/reference/cluster-yml.md"
    hints = {
        "string_type": ("must be one value, not a list or mapping", "write KEY: VALUE"),
        "list_type": ("must be a list", "write it in brackets: [a, b]"),
        "tuple_type": ("must be a list", "write it in brackets: [a, b]"),
        "dict_type": ("must be keys with values", "write {KEY: VALUE}"),
        "model_type": ("must be keys with values", "write {KEY: VALUE, ...}"),
        "too_short": ("is empty", "give at least one"),
        "bool_type": ("must be true or false", "write true or false"),
        "bool_parsing": ("must be true or false", "write true or false"),
        "int_type": ("must be a whole number", "write a number"),
        "int_parsing": ("must be a whole number", "write a number"),
    }
    message, hint = hints.get(fault_type, (fault["msg"].lower(), "see docs/reference/cluster-yml.md"))
    return f"{field}: {message}", hint


def dotted(path: Path) -> str:
    """A path as messages write it: `nodes[2].names`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
    return shorten(text) or "the file"


class SectionReader:
    """Reads sections of one document, and adds their problems with file and line."""

    def __init__(self, document: Document, where: str, problems: Problems) -> None:
        self.document = document
        self.where = where
        self.problems = problems
        # the sections read so far, with their other keys
        self._sections: dict[Path, tuple[type[Section], frozenset[str]]] = {}

    def fit(self, model: type[S], content: object, path: Path, *, other_keys: Iterable[str] = ()) -> S | None:
        """The validated section; None if it has problems, which are added.

        `other_keys` are allowed as well, and read elsewhere.
        """
        others = frozenset(other_keys)
        self._sections[path] = model, others
        mine = (
            {key: item for key, item in content.items() if key not in others} if isinstance(content, dict) else content
        )
        try:
            return model.model_validate(mine)
        except ValidationError as error:
            for fault in error.errors(include_url=False):
                within = tuple(part for part in fault["loc"] if part != "[key]")
                place = (*path, *within)
                is_unknown = fault["type"] == "extra_forbidden"
                words = (f"{dotted(place)}: unknown key", self._hint(place)) if is_unknown else _explain(fault, place)
                self.problems.add(f"{self.where}:{self.document.line(place)}", *words)
        return None

    def _hint(self, place: Path) -> str:
        """For an unknown key: the section around it that has this key, else the nearest key of its own."""
        *within, key = place
        for end in reversed(range(len(within))):
            if key in self._keys_at(place[:end]):
                return f"it is a key of {dotted(place[:end])}: move it there"
        return values.suggest(str(key), self._keys_at(tuple(within)))

    def _keys_at(self, path: Path) -> list[str]:
        """The keys that the section at a path has."""
        for end in range(len(path), -1, -1):
            if path[:end] in self._sections:
                model, others = self._sections[path[:end]]
                return [*_keys(model, path[end:]), *(sorted(others) if end == len(path) else ())]
        return []

    def value(self, path: Path, check: Callable[[V], T], raw: V, instead: T) -> T:
        """The value as `check` returns it; `instead` if it is refused, which adds a problem."""
        try:
            return check(raw)
        except RefusedError as refusal:
            self.problems.refuse(self.at(path), dotted(path), refusal)
            return instead

    def at(self, path: Path) -> str:
        """FILE:LINE of a path."""
        return f"{self.where}:{self.document.line(path)}"
