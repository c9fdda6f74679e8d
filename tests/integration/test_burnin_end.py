"""The end of a burn-in where a submit host does not answer."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.support.files import write_files, write_program
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


def test_another_submit_host_cancels_the_jobs_of_a_burn_in(tmp_path: Path) -> None:
    output = tmp_path / "deepopsctl-burnin-abc-12_0.out"
    write_files(tmp_path, {"groups.ini": GROUPS, output.name: "left by a job"})
    ssh = write_program(tmp_path / "ssh", "exit 255")
    for name in ("squeue", "scancel"):
        (tmp_path / name).symlink_to("/bin/true")
    plays = yaml.safe_load((ROOT / "playbooks" / "operate" / "nodes" / "burnin-end.yml").read_text(encoding="utf-8"))
    plays[0]["environment"] = {"HOME": str(tmp_path), "PATH": f"{tmp_path}:/usr/bin:/bin"}
    silent = {"ansible_connection": "ssh", "ansible_ssh_executable": str(ssh), "ansible_ssh_retries": 0}
    defaults = f"@{ROOT / 'group_vars' / 'all' / 'validate.yml'}"
    options = ("-i", str(tmp_path / "groups.ini"), "-e", defaults, "-e", "validate_burnin_token=abc")

    done = play(tmp_path, plays, {"login1": silent, "ctl1": {}, "cn1": {}}, *options)

    assert done.result("Cancel its jobs").status == "ok"
    assert done.result("Verify that its jobs have ended").status == "ok"
    assert not output.exists()
