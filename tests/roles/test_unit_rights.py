"""Every service of ours that runs as root has no more rights than it needs; what it does need is listed here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from deepopsctl.storage import purge, snapshots
from tests.support.paths import ROOT
from tests.support.role_templates import render

MINIMUM = (
    "NoNewPrivileges", "ProtectSystem", "ProtectKernelTunables", "ProtectKernelModules", "ProtectKernelLogs",
    "ProtectControlGroups", "RestrictRealtime", "RestrictSUIDSGID", "LockPersonality", "SystemCallArchitectures",
    "RestrictAddressFamilies",
)  # fmt: skip
# (what a unit does without, why)
WITHOUT = {
    "deepops-nodemetrics": (
        {"ProtectSystem", "ProtectKernelTunables", "ProtectKernelModules", "ProtectKernelLogs", "ProtectControlGroups"},
        "it reports mounts and cgroups as they are",
    ),
    "deepops-gpumetrics": (
        {"ProtectKernelModules", "ProtectKernelLogs", "RestrictRealtime", "LockPersonality", "RestrictSUIDSGID"},
        "NVIDIA's library may load modules, and no GPU has shown what else it bears",
    ),
    "deepopsctl-mig": (
        {"ProtectKernelTunables", "ProtectKernelModules", "ProtectKernelLogs", "ProtectControlGroups",
         "RestrictAddressFamilies"},
        "NVIDIA's tools may load modules, and no GPU has shown what else they bear",
    ),
    "snapshots": ({"ProtectKernelModules"}, "zfs may load its module"),
    "purge": (
        {"NoNewPrivileges", "RestrictSUIDSGID", "RestrictAddressFamilies"},
        "it sends mails by the site's sendmail, which may be setgid and continue in the background",
    ),
}  # fmt: skip
VALUES = {
    "monitoring_node_gpu_libraries": "/usr/lib", "monitoring_node_address": "192.0.2.1",
    "monitoring_node_monitoring_host": "ctl1", "login_node_cluster": "hpc", "slurm_guard_program": "/x",
    "user_environment_dataset_cache": {"directory": "/x"},
    "monitoring_node_logs_keep_days": 30, "monitoring_node_logs_keep_gb": 10, "ansible_managed": "x",
}  # fmt: skip
OF_ROLES = [
    path
    for path in sorted(ROOT.glob("roles/*/templates/*.service.j2"))
    # a drop-in for a distribution's unit has no description
    if re.search("^Description=", path.read_text(encoding="utf-8"), re.MULTILINE)
]
OF_STORAGE = {"purge": purge._SERVICE, "snapshots": snapshots._SERVICE}


def settings(text: str) -> dict[str, str]:
    """The last value of each setting; a comment and a switch that is off are none."""
    pairs = (line.split("=", 1) for line in text.splitlines() if re.match(r"[A-Za-z]+=", line))
    return {key: value for key, value in pairs if value not in ("no", "false")}


def units() -> Iterator[tuple[str, dict[str, str]]]:
    for path in OF_ROLES:
        role = path.parts[-3]
        yield path.name.removesuffix(".service.j2"), settings(render(role, path.name, **VALUES))
    for name, text in OF_STORAGE.items():
        yield name, settings(text)


def is_roots(unit: dict[str, str]) -> bool:
    return unit.get("User", "root") == "root" and "DynamicUser" not in unit


def test_every_service_of_roots_has_the_minimum_or_a_reason() -> None:
    missing = {
        name: sorted(lacking)
        for name, unit in units()
        if is_roots(unit) and (lacking := set(MINIMUM) - set(unit) - WITHOUT.get(name, (set(), ""))[0])
    }

    assert missing == {}


def test_no_reason_is_left_for_what_a_service_does_not_need() -> None:
    present = dict(units())

    assert set(WITHOUT) <= set(present)
    needless = {name: without & set(present[name]) for name, (without, _) in WITHOUT.items()}
    assert {name: some for name, some in needless.items() if some} == {}


def test_all_services_of_ours_are_among_them() -> None:
    """A unit that is written anywhere else would not be looked at."""
    places = {
        path.relative_to(ROOT).as_posix()
        for directory in ("deepopsctl", "plugins", "roles")
        for path in (ROOT / directory).rglob("*")
        if path.suffix in (".py", ".j2", ".service") and path.is_file() and "[Service]" in _text(path)
    }
    known = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("roles/*/templates/*.j2")}
    elsewhere = {"deepopsctl/storage/purge.py", "deepopsctl/storage/snapshots.py"}
    # of labs and trials, never on a node of a site's for longer than the trial
    elsewhere |= {"deepopsctl/lab/rootfs.py", "deepopsctl/node_programs/suites/validate_ha/faults.py"}

    assert places - known == elsewhere
    written = [path for path in (ROOT / place for place in places & known) if "Description=" in _text(path)]
    assert set(written) == set(OF_ROLES)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


@pytest.mark.parametrize("name", ["deepops-account-dates", "deepops-login-message"])
def test_those_that_only_ask_slurm_have_no_capability_at_all(name: str) -> None:
    unit = dict(units())[name]

    assert (unit["CapabilityBoundingSet"], unit["ProtectSystem"]) == ("", "strict")
