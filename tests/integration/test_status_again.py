"""`status` asks a node once more that took the connection and was late: only a node's own silence counts."""

from __future__ import annotations

from pathlib import Path

from deepopsctl.errors import ExitCode
from deepopsctl.run.request import RunRequest
from deepopsctl.status.cluster import query_status
from deepopsctl.status.nodes import Answer
from tests.integration.sites import make_site, make_unreachable, play

# late the first time only; the file says how often each was asked
TASKS = """\
- name: Query every node
  ansible.builtin.shell: |
    echo x >> {asked}/{{{{ inventory_hostname }}}}
    if [ {{{{ inventory_hostname }}}} = n1 ] && [ $(wc -l < {asked}/n1) -le 1 ]; then sleep 60; fi
  timeout: "{{{{ deepops_node_timeout }}}}"
# debug names the key of its result as the variable
- name: Answer
  ansible.builtin.debug:
    var: deepops
  vars:
    deepops: {{node: {{components: {{}}, versions: {{}}}}}}
"""


def test_a_node_that_was_late_is_asked_once_more_with_more_time(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    make_unreachable(site, "n2")
    asked = tmp_path / "asked"
    asked.mkdir()
    directory = site.content / "playbooks" / "operate" / "cluster"
    (directory / "status.yml").write_text(play(TASKS.format(asked=asked)))

    status = query_status(RunRequest(site.directory, "", content=site.content), 4)

    answers = {node.name: node.answer for node in status.nodes}
    assert (answers["n1"], answers["n2"]) == (Answer.OK, Answer.NONE)
    # each question is a line
    assert (asked / "n1").read_text() == "x\n" * 2
    assert status.exit_code is ExitCode.UNREACHABLE
