"""The suite for live clusters (tests/testinfra) never runs by accident, and says what it needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.paths import ROOT

SUITE = "tests/testinfra"


def pytest_says(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_it_takes_no_part_in_a_run_of_all_tests() -> None:
    # its own tests only: collecting all others takes long
    alongside = [f"--ignore=tests/{path.name}" for path in (ROOT / "tests").iterdir() if path.name != "testinfra"]

    done = pytest_says("--collect-only", "-q", *alongside, "tests")

    assert "no tests collected" in done.stdout


@pytest.mark.parametrize(
    ("options", "message"), [([], "--cluster DIR"), (["--cluster", "/usr"], "is not a cluster directory")]
)
def test_it_refuses_to_run_without_a_cluster(options: list[str], message: str) -> None:
    done = pytest_says(SUITE, *options)

    assert done.returncode == 4
    assert message in done.stderr


def test_it_has_tests_for_every_node_of_a_cluster() -> None:
    done = pytest_says("--collect-only", "-q", SUITE, "--cluster", "inventory/example")

    assert "test_the_services_of_its_roles_run[gpu04]" in done.stdout
    assert "test_its_commands_reach_the_controller[login1]" in done.stdout
    assert "test_its_commands_reach_the_controller[gpu04]" not in done.stdout
