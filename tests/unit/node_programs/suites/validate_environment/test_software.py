"""The site's own software, as shells on this machine answer: functions of a text stand for `module`, `eb` and Spack."""

from __future__ import annotations

import pytest

from deepopsctl.node_programs.suites.validate_environment import software
from deepopsctl.node_programs.suites.validate_environment.software import EASYBUILD, EESSI, SPACK

MODULE = 'module() { case "$*" in "load hello") export EBROOTHELLO=$home/hello;; esac; };'
EB = 'eb() { [ "$1" = --version ] || grep -q Tarball "$1"; };'


def run(start: str, *switched_on: str) -> dict[str, tuple[str, str]]:
    made = software.verify_software("n1", ["bash", "-c", start + ' eval "$0"'], switched_on)
    return {check["name"]: (check["status"], check["message"]) for check in made}


def test_only_what_is_switched_on_is_checked() -> None:
    assert run("") == {}
    assert set(run(MODULE + EB, EESSI)) == {EESSI}


def test_a_package_that_is_built_and_loaded_passes() -> None:
    assert run(MODULE + EB + "spack() { echo 1.0.2; };", EASYBUILD, SPACK) == {
        EASYBUILD: ("pass", ""),
        SPACK: ("pass", ""),
    }


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (MODULE + "eb() { echo '== FAILED: Installation ended unsuccessfully'; return 1; };", "ended unsuccessfully"),
        ("module() { echo unknown: hello >&2; return 1; };" + EB, "unknown: hello"),
        (MODULE.replace("home/hello", "home") + EB, "hello"),
    ],
)
def test_why_a_build_failed_is_in_the_message(start: str, message: str) -> None:
    status, text = run(start, EASYBUILD)[EASYBUILD]

    assert status == "fail"
    assert message in text
