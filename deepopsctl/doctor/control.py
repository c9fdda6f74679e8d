"""Looks at this machine: the only part of the doctor that reads files and starts programs here."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from importlib import metadata

from deepopsctl.clusterdir import ClusterDir
from deepopsctl.doctor.facts import ControlFacts, Requirement
from deepopsctl.secrets import is_encrypted
from deepopsctl.settingscheck import why_closed

PACKAGES = ("ansible-core", "ansible-runner")
US = "deepopsctl"


def look_here(directory: ClusterDir, environment: Mapping[str, str]) -> ControlFacts:
    """Everything about this machine that a run depends on."""
    return ControlFacts(
        python=python(platform.python_version()),
        packages=tuple(package(name) for name in PACKAGES),
        ssh=ssh_version(),
        free_mb=shutil.disk_usage(directory.path).free // 2**20,
        open_files=open_files(directory),
        vault=vault(directory, environment),
    )


def python(version: str) -> Requirement:
    """This Python against what deepopsctl's own metadata wants."""
    wanted = str(metadata.metadata(US)["Requires-Python"] or "")
    return Requirement("Python", version, wanted, _fits(version, wanted))


def package(name: str) -> Requirement:
    """An installed package against what deepopsctl's own metadata wants."""
    from packaging.requirements import Requirement as Wish

    wishes = (Wish(text) for text in metadata.requires(US) or ())
    wanted = next((str(wish.specifier) for wish in wishes if wish.name == name), "")
    try:
        installed = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Requirement(name, "", wanted, good=False)
    return Requirement(name, installed, wanted, _fits(installed, wanted))


def _fits(version: str, wanted: str) -> bool:
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(wanted).contains(version, prereleases=True)


def ssh_version() -> str:
    """`OpenSSH 9.2p1`; '' without an ssh client."""
    if shutil.which("ssh") is None:
        return ""
    said = subprocess.run(["ssh", "-V"], capture_output=True, text=True, check=False, timeout=20).stderr
    found = re.search(r"OpenSSH_(\S+?)[,\s]", said)
    return f"OpenSSH {found[1]}" if found else said.strip() or "ssh"


def open_files(directory: ClusterDir) -> tuple[str, ...]:
    """Private files and folders that others may read, by their names in the cluster directory."""
    private = [directory.vault_password, directory.ssh_key, directory.ssh_key.parent, directory.runs]
    if directory.secrets.is_file() and not is_encrypted(directory.secrets):
        private.append(directory.secrets)
    return tuple(
        str(path.relative_to(directory.path)) for path in private if path.exists() and path.stat().st_mode & 0o077
    )


def vault(directory: ClusterDir, environment: Mapping[str, str]) -> str:
    """Why the secrets stay closed; '' where the password opens them."""
    if not directory.secrets.is_file():
        return f"{directory.secrets.relative_to(directory.path)} is missing"
    return why_closed(directory, environment)
