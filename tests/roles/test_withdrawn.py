"""What a host loses that is no longer to have it: backups, and repositories of packages."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

from tests.roles.content import plays, role_calls
from tests.support.local_ansible import play
from tests.support.paths import ROOT
from tests.support.recorded_roles import Recorded, record

REMOVAL = "Remove backups from hosts that no longer make any"
METRICS = "/var/lib/prometheus/node-exporter/deepops-{}.prom"
NAMES = ("ctl1", "dbd1", "dbd2", "mon1", "mon2", "gpu01")
# two hosts were the monitoring host and slurmdbd's before
GROUPS: dict[str, Sequence[str]] = {
    "slurm_controller": ["ctl1"], "slurm_dbd": ["dbd2"], "monitoring": ["mon2"],
    "deepops_slurm_left_backup": ["dbd1", "mon1"], "deepops_slurm_todo": NAMES,
    "deepops_slurm_left_package_repository": ["ctl1", "gpu01"],
}  # fmt: skip


def play_named(name: str) -> dict[str, Any]:
    (match,) = (each for each in plays("playbooks/slurm.yml") if each["name"] == name)
    return {**match, "become": False}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """What the play of backups asks of each host, were it for all of them."""
    values: dict[str, object] = {
        "deepops_cluster_name": "hpc", "slurm_config": {}, "backup_password": "secret",
        "slurm_backup_repository": "/net/backup", "monitoring_enabled": True, "monitoring_backup": True,
    }  # fmt: skip
    call = next(call for call in role_calls("playbooks/slurm.yml") if call["role"] == "slurm_backup")
    return record(tmp_path_factory.mktemp("backup"), [call], dict.fromkeys(NAMES, values), GROUPS)


def test_a_host_that_was_the_monitoring_host_or_slurmdbds_is_to_lose_timer_and_password(recorded: Recorded) -> None:
    wanted = {host: {path.rpartition("/")[2] for path in recorded.step(host, "backup").texts()} for host in NAMES}

    assert {host for host, files in wanted.items() if "backup.json" in files} == {"ctl1", "dbd2"}
    assert {host for host, files in wanted.items() if "deepops-backup-monitoring.timer" in files} == {"mon2"}
    assert wanted["dbd1"] == wanted["mon1"] == set()
    assert recorded.step("mon1", "backup").arguments["owned"] is True


def test_no_alert_speaks_of_backups_that_a_host_no_longer_makes(recorded: Recorded) -> None:
    absent = {host: recorded.step(host, "backup").arguments["absent"] for host in NAMES}

    assert absent["mon1"] == [METRICS.format("backup"), METRICS.format("backup-monitoring")]
    assert absent["ctl1"] == [METRICS.format("backup-monitoring")]
    assert absent["mon2"] == [METRICS.format("backup")]


@pytest.mark.parametrize(
    ("name", "hosts"),
    [(REMOVAL, ["dbd1", "mon1"]), ("Remove repositories of packages that are no longer used", ["ctl1", "gpu01"])],
)
def test_what_is_left_is_removed_there_and_costs_no_other_host_a_task(
    tmp_path: Path, name: str, hosts: list[str]
) -> None:
    member = [{"host": host, "groups": [group for group in GROUPS if host in GROUPS[group]]} for host in NAMES]
    groups = {
        "ansible.builtin.add_host": {"name": "{{ item.host }}", "groups": "{{ item.groups }}"},
        "loop": member,
        "run_once": True,
    }
    show = {"name": "Show", "ansible.builtin.debug": {"msg": ""}}
    played = [
        {"hosts": "all", "gather_facts": False, "tasks": [groups]},
        {**play_named(name), "roles": [], "tasks": [show]},
    ]

    done = play(tmp_path, played, {name: {} for name in NAMES})

    assert done.status == 0, done.output
    assert sorted(result.host for result in done.results if result.task == "Show") == hosts


def test_the_monitoring_host_does_not_get_the_password_of_slurms_backups() -> None:
    role = ROOT / "roles/slurm_backup"
    own = yaml.safe_load((role / "vars/main.yml").read_text(encoding="utf-8"))["__slurm_backup_monitoring_repository"]
    environment = jinja2.Environment(autoescape=True)
    environment.filters |= {"to_nice_json": json.dumps, "regex_replace": lambda text, old, new: re.sub(old, new, text)}
    values: dict[str, object] = {
        "slurm_backup_cluster": "hpc", "inventory_hostname": "mon1", "slurm_backup_repository": "/net/backup/",
        "slurm_backup_password": "of slurm", "slurm_backup_monitoring_password": "of monitoring",
        "slurm_backup_monitoring_repository": "", "slurm_backup_monitoring_keep": {}, "slurm_backup_environment": {},
    }  # fmt: skip
    values["__slurm_backup_monitoring_repository"] = environment.from_string(own).render(values)

    template = (role / "templates/backup-monitoring.json.j2").read_text(encoding="utf-8")
    text = html.unescape(environment.from_string(template).render(values))

    assert json.loads(text)["password"] == "of monitoring"
    assert json.loads(text)["repository"] == "/net/backup/monitoring"
    assert "of slurm" not in text
