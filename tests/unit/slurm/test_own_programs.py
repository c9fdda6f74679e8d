"""What is deepopsctl's own on nodes is never taken for a site's."""

from __future__ import annotations

import re

import pytest

from deepopsctl.node_programs._shared.own_programs import HEALTH_CHECK, JOB_PROGRAMS, is_own
from deepopsctl.slurm.conf import owned_keys_in
from deepopsctl.storage import purge, snapshots
from tests.support.paths import ROOT

OWN = [
    "/etc/slurm/deepops/prolog",
    "/etc/slurm/deepops/prolog.d/*",
    "/etc/slurm/deepops",
    "//etc/slurm/./deepops//mail",
    "/etc/slurm/x/../deepops/epilog",
    "/etc/slurm/*/prolog",
    "/etc/slurm/deep*/p*",
    "/etc/slurm/*",
    "/usr/local/sbin/deepops-nodecheck",
    "/usr/local/sbin/*",
    "/usr/local/lib/deepopsctl/mig.py",
]
OF_SITES = [
    "/etc/slurm/prolog",
    "/etc/slurm/prolog.d/*",
    "/etc/slurm/p*",
    "/etc/slurm/deepops.d/prolog",
    "/etc/slurm/deepops-prolog",
    "/usr/local/sbin/nhc",
    "/usr/local/sbin/*.prolog",
    "/usr/sbin/nhc",
    "/sbin/reboot",
    "/bin/true",
]


def test_paths_and_patterns_that_lead_to_an_own_program_are_known() -> None:
    assert [path for path in OWN if not is_own(path)] == []
    assert [path for path in OF_SITES if is_own(path)] == []


def test_every_program_that_roles_install_is_known() -> None:
    """Where Slurm's configuration could name it: not the commands of users."""
    texts = [path.read_text("utf-8") for path in (ROOT / "roles").glob("*/*/*") if path.suffix in (".yml", ".j2")]
    path_of_own = re.compile(r"/(?:etc/slurm|usr/local)/[a-z./_-]*deepops[a-z./_-]*")
    named = {path for text in texts for path in path_of_own.findall(text)}
    programs = {HEALTH_CHECK, purge.PROGRAM, snapshots.PROGRAM, f"{JOB_PROGRAMS}/mail"}
    named -= {path for path in named if path.startswith("/usr/local/share/")}

    assert len(named) > 20
    assert [path for path in sorted(named | programs) if not is_own(path)] == []


@pytest.mark.parametrize("key", ["Prolog", "EPILOG", "TaskProlog", "HealthCheckProgram", "SlurmctldPrimaryOnProg"])
def test_a_setting_that_names_one_is_refused_with_what_to_do(key: str) -> None:
    (message,) = owned_keys_in({key: "/etc/slurm/deepops/prolog", "Epilog": "/site/epilog", "MaxJobCount": 5})

    assert message.startswith(f"{key}: /etc/slurm/deepops/prolog is deepopsctl's own program")
    assert "remove the line" in message


def test_one_of_several_programs_is_enough() -> None:
    for value in ("/site/a,/etc/slurm/deepops/prolog", ["/site/a", "/etc/slurm/deepops/prolog"]):
        assert len(owned_keys_in({"Prolog": value})) == 1
