"""Where users keep files, by the names of user guides: each space is an entry of `storage`. Frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from types import MappingProxyType


class Owner(StrEnum):
    """Whose each directory of a space is."""

    USER = "user"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class Naming:
    """How users reach a space: a variable, a link in their home ('' for none), and whose directories are by default."""

    variable: str
    link: str = ""
    by: Owner = Owner.USER


# What guides call them: the Alliance and Mila (scratch, project, nearline), FAU (work, vault).
NAMES: Mapping[str, Naming] = MappingProxyType({
    "home": Naming("HOME"),
    "scratch": Naming("SCRATCH", "scratch"),
    "project": Naming("PROJECT", "projects", Owner.GROUP),
    "nearline": Naming("NEARLINE", "nearline", Owner.GROUP),
    "work": Naming("WORK"),
    "vault": Naming("HPCVAULT"),
    "local": Naming("LOCAL_SCRATCH"),
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Space:
    """One entry of `spaces`: `storage` is the name of the entry of `storage` that has it."""

    name: str
    storage: str
    by: Owner

    def written(self) -> dict[str, object]:
        """The entry as a person would write it."""
        return {"storage": self.storage, **({} if self.by is NAMES[self.name].by else {"by": self.by.value})}

    def variable(self) -> dict[str, object]:
        """One of the inventory variable `environment_spaces`."""
        return {key: str(value) for key, value in asdict(self).items()}
