"""What an import brings besides machines: settings, secrets, and a list of everything that it could not bring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True)
class Note:
    """One thing of the source by its name: where it stands, what became of it, what a person may do."""

    name: str
    where: str
    reason: str
    hint: str = ""

    def to_dict(self) -> dict[str, str]:
        """The object of `init --json`."""
        return asdict(self)


@dataclass(slots=True)
class Carryover:
    """Filled by the readers; `settings` are Ansible variables for settings.yml, `secrets` for the vault."""

    settings: dict[str, object] = field(default_factory=dict)
    # what a node list itself says for settings.yml: nothing of it was translated, so nothing has to be reported
    direct_settings: dict[str, object] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    not_carried: list[Note] = field(default_factory=list)
    to_check: list[Note] = field(default_factory=list)
    changed: list[Note] = field(default_factory=list)

    def leave(self, name: str, where: str, reason: str, hint: str = "") -> None:
        """Note something that is not carried over."""
        self.not_carried.append(Note(name, where, reason, hint))

    def check(self, name: str, where: str, reason: str, hint: str = "") -> None:
        """Note something that is carried over, but wants a look."""
        self.to_check.append(Note(name, where, reason, hint))

    def change(self, name: str, reason: str, hint: str = "") -> None:
        """Note something that deepopsctl sets in another way than the source had it."""
        self.changed.append(Note(name, "", reason, hint))

    def has_slurm(self, key: str) -> bool:
        """Whether `slurm_config` says something of a key, if only that it is to have no value."""
        config = self.settings.get("slurm_config")
        return isinstance(config, Mapping) and key in config

    def set_slurm(self, key: str, value: str | None) -> None:
        """One key of slurm.conf for `slurm_config`; None takes deepopsctl's own away."""
        config = self.settings.setdefault("slurm_config", {})
        if isinstance(config, dict):
            config[key] = value

    def unset_slurm(self, key: str) -> None:
        """Take a key of `slurm_config` back: deepopsctl's own stays."""
        config = self.settings.get("slurm_config")
        if isinstance(config, dict):
            config.pop(key, None)
            if not config:
                del self.settings["slurm_config"]

    def slurm(self, key: str) -> str | None:
        """A key of `slurm_config` as carried so far."""
        config = self.settings.get("slurm_config")
        value = config.get(key) if isinstance(config, Mapping) else None
        return None if value is None else str(value)

    def __bool__(self) -> bool:
        return bool(self.settings or self.secrets or self.not_carried or self.to_check or self.changed)
