"""Checks of the control machine: the only part of the doctor that reads files and starts programs here."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from importlib import metadata

from deepopsctl.checks.check import Check
from deepopsctl.cluster.directory import MISSING_HINT, ClusterDir
from deepopsctl.cluster.secrets import is_encrypted
from deepopsctl.cluster.settings import why_closed
from deepopsctl.doctor.check_builders import failed, passed, warned
from deepopsctl.doctor.facts import ControlFacts, Requirement

PACKAGES = ("ansible-core", "ansible-runner")
PACKAGE_NAME = "deepopsctl"


TARGET = "control"
# the end of what is said of a file of secrets that is not there
MISSING = "is missing"
LEAST_MB, ENOUGH_MB = 100, 1000


def read_control_facts(directory: ClusterDir, environment: Mapping[str, str]) -> ControlFacts:
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
    wanted = str(metadata.metadata(PACKAGE_NAME)["Requires-Python"] or "")
    return Requirement("Python", version, wanted, _fits(version, wanted))


def package(name: str) -> Requirement:
    """An installed package against what deepopsctl's own metadata wants."""
    from packaging.requirements import Requirement as Dependency

    requirements = (Dependency(text) for text in metadata.requires(PACKAGE_NAME) or ())
    wanted = next((str(requirement.specifier) for requirement in requirements if requirement.name == name), "")
    try:
        installed = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Requirement(name, "", wanted, good=False)
    return Requirement(name, installed, wanted, _fits(installed, wanted))


def ssh_version() -> str:
    """`OpenSSH 9.2p1`; '' without an ssh client."""
    if shutil.which("ssh") is None:
        return ""
    output = subprocess.run(["ssh", "-V"], capture_output=True, text=True, check=False, timeout=20).stderr
    match = re.search(r"OpenSSH_(\S+?)[,\s]", output)
    return f"OpenSSH {match[1]}" if match else output.strip() or "ssh"


def open_files(directory: ClusterDir) -> tuple[str, ...]:
    """Private files and directories that others may read, by their names in the cluster directory."""
    private = [directory.vault_password, directory.ssh_key, directory.ssh_key.parent, directory.runs]
    if directory.secrets.is_file() and not is_encrypted(directory.secrets):
        private.append(directory.secrets)
    return tuple(
        str(path.relative_to(directory.path)) for path in private if path.exists() and path.stat().st_mode & 0o077
    )


def vault(directory: ClusterDir, environment: Mapping[str, str]) -> str:
    """Why the vault password does not open the secrets; '' if it does."""
    if not directory.secrets.is_file():
        return f"{directory.secrets.relative_to(directory.path)} {MISSING}"
    return why_closed(directory, environment)


def check_control_host(seen: ControlFacts) -> tuple[Check, ...]:
    """All checks of this machine except the clock, which needs the nodes."""
    return tuple(_checks(seen))


def _fits(version: str, wanted: str) -> bool:
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(wanted).contains(version, prereleases=True)


def _checks(seen: ControlFacts) -> Iterator[Check]:
    python = seen.python
    if python.good:
        yield passed("control-python", TARGET, python.installed, python.wanted)
    else:
        yield failed("control-python", TARGET, "deepopsctl is not tested with it", python.installed, python.wanted)
    yield _packages(seen)
    if seen.ssh:
        yield passed("control-ssh", TARGET, seen.ssh)
    else:
        yield failed("control-ssh", TARGET, "this machine has no ssh client")
    yield _disk(seen.free_mb)
    if seen.open_files:
        yield failed("control-files", TARGET, f"others may read {', '.join(seen.open_files)}")
    else:
        yield passed("control-files", TARGET, "only you may read them")
    if seen.vault:
        yield failed("control-vault", TARGET, seen.vault, hint=MISSING_HINT if seen.vault.endswith(MISSING) else "")
    else:
        yield passed("control-vault", TARGET, "the password opens them")


def _packages(seen: ControlFacts) -> Check:
    measured = ", ".join(f"{package.name} {package.installed or 'missing'}" for package in seen.packages)
    expected = ", ".join(f"{package.name} {package.wanted}" for package in seen.packages)
    bad = [package for package in seen.packages if not package.good]
    if not bad:
        return passed("control-packages", TARGET, measured, expected)
    words = ", ".join(f"{p.name} is {p.installed}" if p.installed else f"{p.name} is not installed" for p in bad)
    return failed("control-packages", TARGET, words, measured, expected)


def _disk(free_mb: int) -> Check:
    expected = f"at least {ENOUGH_MB}"
    if free_mb < LEAST_MB:
        message = "too little for run directories"
        return failed("control-disk", TARGET, message, str(free_mb), expected, unit="MiB free")
    if free_mb < ENOUGH_MB:
        return warned("control-disk", TARGET, "little room is left", str(free_mb), expected, "MiB free")
    return passed("control-disk", TARGET, f"{free_mb / 1024:.1f}", unit="GiB free")
