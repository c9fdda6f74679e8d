"""Settings of one purge: a JSON file that deploy writes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from ..._shared import settings as settings_file
from ..._shared.settings import SettingsError

DIRECTORY = "/etc/deepopsctl/purge"
STATE = "/var/lib/deepops-purge"
LOGS = "/var/log/deepops-purge"
MODES = ("list", "delete")
# Never purged, whatever the configuration: these and all below them ...
SYSTEM_TREES = (
    *("/bin", "/boot", "/dev", "/efi", "/etc", "/gnu", "/lib", "/lib32", "/lib64", "/libx32", "/lost+found", "/nix"),
    *("/ostree", "/proc", "/root", "/run", "/sbin", "/snap", "/sys", "/sysroot", "/usr"),
    *("/var/account", "/var/adm", "/var/backups", "/var/cache", "/var/crash", "/var/db", "/var/empty", "/var/games"),
    *("/var/kerberos", "/var/lib", "/var/lock", "/var/log", "/var/mail", "/var/named", "/var/nis", "/var/preserve"),
    *("/var/run", "/var/snap", "/var/spool", "/var/www", "/var/yp"),
)
# ... and these themselves; a directory below them is allowed.
_SYSTEM_FOLDERS = tuple("/" + name for name in ["media", "opt", "srv", "tmp", "var", "var/local", "var/opt", "var/tmp"])
HOMES = ("/home",)
# what holds the homes of users is called so wherever it is mounted or exported
_HOME_NAMES = ("home", "homes")


@dataclass(frozen=True)
class Settings:
    """One purge; ages in seconds."""

    name: str
    root: str
    age: int
    mode: str = "list"
    warn: int = 0
    mail: str = ""
    exclude: tuple[str, ...] = ()
    empty_directories: bool = False
    # age counts from the last change alone
    ignore_reads: bool = False
    mounted: bool = False
    sendmail: str = "/usr/sbin/sendmail"
    state: str = ""
    logs: str = ""

    @property
    def deletes(self) -> bool:
        """Whether anything is ever deleted."""
        return self.mode == "delete"

    @property
    def warns(self) -> bool:
        """Whether users are notified before; a purge that only lists needs no notice."""
        return self.deletes and self.warn > 0

    @property
    def unused(self) -> str:
        """What a file was that is due, for people."""
        return "not changed" if self.ignore_reads else "not used"


def path_of(name: str) -> str:
    """The file of a purge, by its name or as a path."""
    return name if "/" in name else os.path.join(DIRECTORY, name + ".json")


def load(path: str) -> Settings:
    """Read and check the configuration."""
    config = settings_file.load(path)
    try:
        return from_object(config)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from error


def from_object(config: dict[str, Any]) -> Settings:
    """Settings from the object that a configuration is."""
    known = set(Settings.__dataclass_fields__)
    if unknown := sorted(set(config) - known - {"schema"}):
        raise SettingsError("unknown: " + ", ".join(unknown))
    try:
        settings = Settings(
            **{**{key: config[key] for key in known & set(config)}, "exclude": tuple(config.get("exclude", ()))}
        )
    except TypeError as error:
        raise SettingsError(str(error)) from error
    _check(settings)
    where = {
        "state": settings.state or os.path.join(STATE, settings.name),
        "logs": settings.logs or os.path.join(LOGS, settings.name),
    }
    return Settings(**{**settings.__dict__, **where})


def _check(settings: Settings) -> None:
    numbers = (settings.age, settings.warn)
    if any(isinstance(value, bool) or not isinstance(value, int) for value in numbers):
        raise SettingsError("age and warn are whole seconds")
    if settings.age < 3600 or not 0 <= settings.warn <= settings.age:
        raise SettingsError("age is an hour at least, warn not more than age")
    if settings.mode not in MODES:
        raise SettingsError("mode is one of " + ", ".join(MODES))
    if problem := root_problem(settings.root):
        raise SettingsError(f"root {settings.root}: {problem}")


def root_problem(root: str) -> str:
    """Why a directory must not be purged; '' if it may."""
    if not root.startswith("/") or root != os.path.normpath(root) or root.startswith("//"):
        return "not an absolute path in its plain form"
    if root == "/":
        return "the whole node"
    if root in _SYSTEM_FOLDERS or any(root == tree or root.startswith(tree + "/") for tree in SYSTEM_TREES):
        return "belongs to the system"
    return "holds the homes of users" if holds_homes(root) else ""


def holds_homes(path: str) -> bool:
    """Whether a path has a name like those that hold the homes of users."""
    return os.path.basename(path).lower() in _HOME_NAMES
