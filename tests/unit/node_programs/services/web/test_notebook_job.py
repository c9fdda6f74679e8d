"""The script of a notebook's job, as bash runs it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from deepopsctl.node_programs.services.web.notebook_job import script


@pytest.mark.parametrize("mask", [0o022, 0o007])
def test_files_of_a_notebook_have_the_users_own_mode_and_its_log_is_private(tmp_path: Path, mask: int) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\numask; touch made\n", encoding="utf-8")
    program.chmod(0o755)
    text = script(str(program), "notebook.py")

    subprocess.run(["bash"], input=text, text=True, check=True, cwd=tmp_path, env={"HOME": str(tmp_path)}, umask=mask)

    log = tmp_path / ".local/state/deepopsctl/notebook.log"
    assert (log.read_text("utf-8").strip(), log.stat().st_mode & 0o777) == (f"{mask:04o}", 0o600)
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o666 & ~mask
