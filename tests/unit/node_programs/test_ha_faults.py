"""The faults of `validate ha` end by themselves."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from deepopsctl.node_programs.validate_ha import faults
from tests.support.files import write_program


def test_a_slurmctld_that_does_not_run_is_not_frozen_in_place_of_what_would_wake_it(tmp_path: Path) -> None:
    program = write_program(tmp_path / "systemctl", "echo 0")
    environment = {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    text = faults.script("frozen", 0, with_slurmdbd=False)

    with subprocess.Popen(["/bin/sh", "-c", text], env=environment, start_new_session=True) as shell:
        try:
            assert shell.wait(10) == 1
        finally:
            shell.kill()
