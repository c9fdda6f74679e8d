"""What an import carries over besides nodes: settings, secrets, and notes on everything that it can't."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True)
class Note:
    """A note on one item of the source: its name, where it is, what happened to it, what to do."""

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
    # `settings` of a node list, for settings.yml: not translated, so not reported
    direct_settings: dict[str, object] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    not_carried: list[Note] = field(default_factory=list)
    to_check: list[Note] = field(default_factory=list)
    changed: list[Note] = field(default_factory=list)

    def leave(self, name: str, where: str, reason: str, hint: str = "") -> None:
        """Add a note: not carried over."""
        self.not_carried.append(Note(name, where, reason, hint))

    def check(self, name: str, where: str, reason: str, hint: str = "") -> None:
        """Add a note: carried over, but to be checked."""
        self.to_check.append(Note(name, where, reason, hint))

    def change(self, name: str, reason: str, hint: str = "") -> None:
        """Add a note: deepopsctl sets it differently from the source."""
        self.changed.append(Note(name, "", reason, hint))

    def has_slurm(self, key: str) -> bool:
        """Whether `slurm_config` has a key, even without a value."""
        config = self.settings.get("slurm_config")
        return isinstance(config, Mapping) and key in config

    def set_slurm(self, key: str, value: str | None) -> None:
        """Set a key of `slurm_config`; None removes deepopsctl's own value."""
        config = self.settings.setdefault("slurm_config", {})
        if isinstance(config, dict):
            config[key] = value

    def unset_slurm(self, key: str) -> None:
        """Remove a key of `slurm_config`: deepopsctl's own value stays."""
        config = self.settings.get("slurm_config")
        if isinstance(config, dict):
            config.pop(key, None)
            if not config:
                del self.settings["slurm_config"]

    def slurm(self, key: str) -> str | None:
        """The value of a key of `slurm_config`, None for none."""
        config = self.settings.get("slurm_config")
        value = config.get(key) if isinstance(config, Mapping) else None
        return None if value is None else str(value)

    def __bool__(self) -> bool:
        return bool(self.settings or self.secrets or self.not_carried or self.to_check or self.changed)
