"""The page "Your first cluster", typed line by line."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tests.lab.harness import DEEPOPSCTL, PATIENCE_S, PREFIX, lab_down
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "get-started" / "first-cluster.md"
# validate has to find that slurmd was stopped
FAILING = "validate    # names gpu01"


def lines() -> list[str]:
    """The page's commands for the control machine; those inside a node's shell run by `su` there."""
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def as_typed(line: str, lab: str) -> str:
    """The line for a lab of another name, where the tests are root already."""
    line = line.removeprefix("$ ").replace("sudo podman exec lab-", f"podman exec {lab}-")
    line = line.replace("/labs/lab/", f"/labs/{lab}/").replace("deepopsctl lab up", f"deepopsctl lab up --name {lab}")
    line = line.replace("deepopsctl lab down", f"deepopsctl lab down --name {lab}")
    if line.startswith("ubuntu@ctl1:~$ "):
        return f"podman exec {lab}-ctl1 su - ubuntu -c {shell_quoted(line.partition('$ ')[2])}"
    return line


def shell_quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def test_every_line_of_the_page_does_what_the_page_says(tmp_path: Path) -> None:
    lab = f"{PREFIX}-first"
    environment = {**os.environ, "PATH": f"{Path(DEEPOPSCTL).parent}:{os.environ['PATH']}"}
    done = []
    lab_down(lab)
    try:
        for line in lines():
            # the shell that the lines after it are typed into
            if line.endswith("lab-ctl1 bash"):
                continue
            typed = as_typed(line, lab)
            result = subprocess.run(
                ["bash", "-c", typed], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE_S
            )
            expected = 1 if line.endswith(FAILING) else 0
            assert result.returncode == expected, f"{typed}: {result.stdout}{result.stderr}"
            done.append((line, result.stdout + result.stderr))
    finally:
        lab_down(lab)

    output = dict(done)
    assert "gpu01" in next(text for line, text in done if line.endswith(FAILING))
    assert "nothing changed" in next(text for line, text in done if "once more" in line)
    assert "gpu01" in output["ubuntu@ctl1:~$ srun -N 2 --gpus-per-node=1 hostname"]
