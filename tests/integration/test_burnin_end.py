"""The end of a burn-in where a submit host does not answer."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.support.local_ansible import play
from tests.support.paths import ROOT

GROUPS = """\
[slurm_cluster]
login1
ctl1
cn1
[slurm_login]
login1
[slurm_controller]
ctl1
[slurm_compute]
cn1
"""


def run(directory: Path) -> tuple[str, str, bool]:
    """How the jobs were cancelled and verified where login1 is silent, and whether an output is left."""
    (directory / "groups.ini").write_text(GROUPS, encoding="utf-8")
    (directory / "ssh").write_text("#!/bin/sh\nexit 255\n", encoding="utf-8")
    (directory / "ssh").chmod(0o755)
    for name in ("squeue", "scancel"):
        (directory / name).symlink_to("/bin/true")
    output = directory / "deepopsctl-burnin-abc-12_0.out"
    output.write_text("left by a job", encoding="utf-8")
    plays = yaml.safe_load((ROOT / "playbooks" / "operate" / "burnin-end.yml").read_text(encoding="utf-8"))
    plays[0]["environment"] = {"HOME": str(directory), "PATH": f"{directory}:/usr/bin:/bin"}
    silent = {"ansible_connection": "ssh", "ansible_ssh_executable": str(directory / "ssh"), "ansible_ssh_retries": 0}
    done = play(
        directory,
        plays,
        {"login1": silent, "ctl1": {}, "cn1": {}},
        *("-i", str(directory / "groups.ini"), "-e", "validate_burnin_token=abc"),
    )
    names = ("Cancel its jobs", "Verify that its jobs have ended")
    cancelled, verified = (done.result(name).status for name in names)
    return cancelled, verified, output.exists()


def test_another_submit_host_cancels_the_jobs_of_a_burn_in(tmp_path: Path) -> None:
    assert run(tmp_path) == ("ok", "ok", False)
