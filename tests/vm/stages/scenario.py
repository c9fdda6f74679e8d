"""Molecule's scenario on virtual machines of its own, which are gone at the end, whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT
from tests.vm.stages.machines import PATIENCE_S
from tests.vm.stages.stand import NETWORKS

# to be read while it runs
LOG = ROOT / ".cache" / "test-vm" / "molecule.log"
TOOLS = Path(sys.executable).parent


def molecule(verb: str) -> list[str]:
    """The command for the scenario."""
    return [str(TOOLS / "molecule"), verb, "--scenario-name", "vagrant"]


def run(os_name: str, box: str) -> tuple[int, str]:
    """Exit code and output of `molecule test` on the box of a release.

    Raises `subprocess.TimeoutExpired` after an hour.
    """
    environment = {
        **os.environ,
        "PATH": f"{TOOLS}:{os.environ['PATH']}",
        "DEEPOPSCTL_VM_BOX": box,
        "DEEPOPSCTL_TEST_VM_NAME": f"{os_name}-molecule",
        "DEEPOPSCTL_TEST_VM_NETWORK": NETWORKS[os_name, "molecule"],
    }
    LOG.parent.mkdir(parents=True, exist_ok=True)
    with LOG.open("wb") as log:
        # a group of its own, so that all of it can be ended
        process = subprocess.Popen(
            molecule("test"),
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        code = process.wait(timeout=2 * PATIENCE_S)
    finally:
        # interrupted, or it took too long
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(timeout=60)
            subprocess.run(molecule("destroy"), cwd=ROOT, env=environment, check=True, timeout=PATIENCE_S)
    return code, LOG.read_text(encoding="utf-8", errors="replace")
