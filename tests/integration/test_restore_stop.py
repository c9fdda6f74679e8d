"""A restore where the second controller does not answer: its slurmctld may run, and write into the state."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.support.files import write_program
from tests.support.local_ansible import play
from tests.support.paths import ROOT

GROUPS = "[slurm_controller]\nctl1\nctl2\n[slurm_cluster:children]\nslurm_controller\n"


def test_no_state_is_restored_while_a_controller_does_not_answer(tmp_path: Path) -> None:
    (tmp_path / "groups.ini").write_text(GROUPS, encoding="utf-8")
    (play_of_stop,) = yaml.safe_load((ROOT / "playbooks/operate/restore/restore-stop.yml").read_text(encoding="utf-8"))
    restore = {"name": "Restore", "ansible.builtin.ping": {}}
    plays = [
        {**play_of_stop, "become": False},
        {"hosts": "slurm_controller", "gather_facts": False, "tasks": [restore]},
    ]
    ssh = write_program(tmp_path / "bin" / "ssh", "exit 255")
    silent = {"ansible_connection": "ssh", "ansible_ssh_executable": str(ssh), "ansible_ssh_retries": 0}
    state = '{"slurm_state": {"mount": "/srv", "directory": "/srv/slurmctld"}}'

    done = play(tmp_path, plays, {"ctl1": {}, "ctl2": silent}, "-i", str(tmp_path / "groups.ini"), "-e", state)

    refused = done.result("Refuse a restore while a controller may run slurmctld")
    assert (refused.host, refused.status) == ("ctl1", "failed"), done.output
    assert "slurmctld may run on ctl2" in refused.data["msg"]
    assert {"Stop slurmctld", "Restore"}.isdisjoint(result.task for result in done.results)
