"""The machines as fixtures, and the summary at the end. `make test-vm` runs this; other calls of pytest pass it by."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.vm.stages.machines import PATIENCE_S
from tests.vm.stages.stand import Stand, stand_for
from tests.vm.stages.summary import Stage, document, lines
from tests.vm.stages.vmcluster import VmCluster

HERE = Path(__file__).parent
OS = os.environ.get("DEEPOPSCTL_VM_OS", "debian13")
KEEP = bool(os.environ.get("DEEPOPSCTL_VM_KEEP"))
# where a whole run that passed leaves its page
PAGE = os.environ.get("DEEPOPSCTL_VM_PAGE", "")
STAGES: dict[str, Stage] = {}
# asked while the machines are there
VERSIONS: dict[str, str] = {}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """All stages need virtual machines and an hour: they run where `-m vm` asks for them."""
    vm_items = [item for item in items if HERE in item.path.parents]
    for item in vm_items:
        item.add_marker(pytest.mark.vm)
        # a whole deploy on emulated machines, on whatever else this host has to do
        item.add_marker(pytest.mark.timeout(3 * PATIENCE_S))
    if "vm" not in str(config.option.markexpr).split():
        items[:] = [item for item in items if HERE not in item.path.parents]
        if vm_items:
            config.hook.pytest_deselected(items=vm_items)


@pytest.fixture(scope="session")
def stand() -> Iterator[Stand]:
    """Machines and directory; nothing of them is left at the end, unless they are asked to stay."""
    vm_stand = stand_for(OS)
    # Ansible gives sudo 12 s to answer, or the node is unreachable: a busy emulated one takes longer
    os.environ.setdefault("ANSIBLE_TIMEOUT", "120")
    yield vm_stand
    VERSIONS.update(vm_stand.versions())
    if not KEEP:
        vm_stand.clear()


@pytest.fixture(scope="module")
def cluster(stand: Stand) -> VmCluster:
    """The cluster as the first deploy left it."""
    return stand.deployed()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Print at once why a stage failed: pytest does it when all have ended, two hours later."""
    report = yield
    if report.failed and HERE in item.path.parents:
        terminal = item.config.pluginmanager.get_plugin("terminalreporter")
        assert terminal is not None
        terminal.ensure_newline()
        terminal.write_line(report.longreprtext)
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count a phase of a test for its stage."""
    path = ROOT / report.nodeid.partition("::")[0]
    if path.parent == HERE:
        name = path.stem.removeprefix("test_")
        STAGES.setdefault(name, Stage(name)).count(report.when or "", report.outcome, report.duration)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    """Print the table, and write the page of docs/."""
    if not STAGES:
        return
    stages, facts = list(STAGES.values()), _of_the_checkout() | VERSIONS
    terminalreporter.section("stages on virtual machines")
    for line in lines(stages, facts):
        terminalreporter.write_line(line)
    if PAGE and exitstatus == 0:
        Path(PAGE).parent.mkdir(parents=True, exist_ok=True)
        Path(PAGE).write_text(document(stages, facts, OS), encoding="utf-8")
        terminalreporter.write_line(f"\nwritten to {PAGE}")


def _of_the_checkout() -> dict[str, str]:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout.strip()

    changed = " and changes that are in no commit" if git("status", "--porcelain", "--untracked-files=no") else ""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "commit": git("rev-parse", "--short", "HEAD") + changed,
        "this machine": f"{os.cpu_count()} cores, {os.uname().sysname} {os.uname().release}",
    }
