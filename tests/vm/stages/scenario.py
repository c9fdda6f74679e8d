"""Molecule's scenario on virtual machines of its own, which are gone at the end, whatever happens."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.vm.stages.machines import PATIENCE_S, ROOT

# to be read while it runs
LOG = ROOT / ".cache" / "test-vm" / "molecule.log"


@dataclass
class Scenario:
    """One run of `molecule test`; `box` is what its machines are made from."""

    box: str
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def run(self) -> tuple[int, str]:
        """Its exit code and all that it wrote. Raises `subprocess.TimeoutExpired` after an hour."""
        LOG.parent.mkdir(parents=True, exist_ok=True)
        with LOG.open("wb") as log:
            # a group of its own: an interrupted test run ends it in `stop`, with its machines
            self._process = subprocess.Popen(
                self._argv("test"),
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        code = self._process.wait(timeout=2 * PATIENCE_S)
        return code, LOG.read_text(encoding="utf-8", errors="replace")

    def stop(self) -> None:
        """End it where it still runs, and remove its machines; nothing to do where it ended by itself."""
        if self._process is None or self._process.poll() is not None:
            return
        os.killpg(self._process.pid, 15)
        self._process.wait(timeout=60)
        subprocess.run(self._argv("destroy"), cwd=ROOT, env=self._environment, check=True, timeout=PATIENCE_S)

    @property
    def _environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "DEEPOPSCTL_VM_BOX": self.box}

    @staticmethod
    def _argv(verb: str) -> list[str]:
        return [str(Path(sys.executable).parent / "molecule"), verb, "--scenario-name", "vagrant"]
