"""`doctor` asks once more where sudo was silent. A busy machine is not a finding; a sudo that hangs is one."""

from __future__ import annotations

import json
from pathlib import Path

from deepopsctl.run.request import default_width
from tests.data.doctor_samples import REPORT
from tests.integration.sites import make_site, make_unreachable, play

# n1's sudo is silent the first time, ctl1's always; of each question, what the node has for its answer
TASKS = """\
- name: Query every node's state
  ansible.builtin.shell: |
    echo {{{{ deepops_node_timeout | default(60) }}}} >> {asked}/{{{{ inventory_hostname }}}}
    wc -l < {asked}/{{{{ inventory_hostname }}}}
    echo {{{{ ansible_forks }}}} > {asked}/forks
  timeout: "{{{{ deepops_node_timeout | default(60) }}}}"
  register: question
- name: Answer
  ansible.builtin.debug:
    var: deepops
  vars:
    works: "{{{{ inventory_hostname == 'n1' and question.stdout == '2' }}}}"
    text: "Task failed: Timeout (12s) waiting for privilege escalation prompt: "
    deepops: {{doctor: {report}, call: {{asked: {{before: 0, after: 1}}, sudo: "{{{{ '' if works else text }}}}"}}}}
"""


def test_a_node_whose_sudo_was_silent_is_asked_once_more_with_more_time(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    site.write_playbook("slurm", play("[]"))
    make_unreachable(site, "n2")
    asked = tmp_path / "asked"
    asked.mkdir()
    report = {key: value for key, value in REPORT.items() if key not in ("asked", "sudo")}
    directory = site.content / "playbooks" / "operate" / "cluster"
    (directory / "doctor.yml").write_text(play(TASKS.format(asked=asked, report=json.dumps(report))))

    done = site.command("doctor", "--json")

    assert "asking late nodes again, with more time: ctl1,n1" in done.stderr
    checks = {(check["name"], check["target"]): check for check in json.loads(done.stdout)["checks"]}
    assert checks["sudo", "n1"]["status"] == "pass", done.stderr
    assert checks["sudo", "ctl1"]["status"] == "fail"
    assert checks["reachable", "n2"]["status"] == "fail"
    first, second = map(int, (asked / "n1").read_text().split())
    assert (first, second >= 90) == (60, True)
    # each node's ssh opens a connection: as many at a time as this machine has processors for
    assert int((asked / "forks").read_text()) == default_width()
    # the report is one, in the directory of the first question
    assert json.loads((site.last_run() / "checks.json").read_text())["checks"] == list(checks.values())
