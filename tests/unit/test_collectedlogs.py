"""How the journals of nodes are asked for on the monitoring host."""

from __future__ import annotations

import shlex
from pathlib import Path

from deepopsctl.cli import run
from deepopsctl.clusterdir import ClusterDir
from deepopsctl.collectedlogs import Question, log_host, ssh_command
from deepopsctl.errors import ExitCode
from deepopsctl.logcollector.places import files_of
from deepopsctl.nodeselect import select_nodes

SPEC = """\
schema: 1
cluster: {name: hpc, user: ubuntu}
nodes:
  - {names: ctl1, addresses: 192.0.2.1, roles: [controller]}
  - {names: mon1, addresses: 192.0.2.2, roles: [monitoring]}
  - {names: "gpu[01-04]", addresses: "192.0.2.[11-14]", roles: [compute]}
"""


def asked(folder: Path, spec: str, nodes: str, question: Question) -> tuple[list[str], list[str]]:
    """The command for ssh, and what it runs there."""
    (folder / "cluster.yml").write_text(spec, encoding="utf-8")
    directory = ClusterDir.open(folder)
    cluster = directory.cluster()
    command = ssh_command(directory, cluster, select_nodes([nodes], cluster), question)
    return command[:-1], shlex.split(command[-1])


def test_the_machine_that_is_named_for_monitoring_is_asked(tmp_path: Path) -> None:
    ssh, _ = asked(tmp_path, SPEC, "gpu01", Question())

    assert ssh[-4:] == ["-l", "ubuntu", "--", "192.0.2.2"]
    assert f'UserKnownHostsFile="{tmp_path}/known_hosts"' in ssh
    assert f'IdentityFile="{tmp_path}/ssh/id_ed25519"' in ssh


def test_without_one_the_first_controller_is_asked(tmp_path: Path) -> None:
    (tmp_path / "cluster.yml").write_text(SPEC.replace("monitoring", "login"), encoding="utf-8")

    assert log_host(ClusterDir.open(tmp_path).cluster()).name == "ctl1"


def test_nodes_are_told_apart_by_the_files_that_their_certificates_gave_them(tmp_path: Path) -> None:
    _, remote = asked(tmp_path, SPEC, "gpu[02-03]", Question())

    assert remote[:2] == ["sudo", "-n"]
    assert [word for word in remote if word.startswith("--file")] == [
        f"--file={files_of('gpu02')}",
        f"--file={files_of('gpu03')}",
    ]


def test_what_was_asked_for_is_journalctls_to_judge_and_no_shells(tmp_path: Path) -> None:
    question = Question(("slurmd", "a b; reboot"), since="-1h", until="2026-11-22 10:00", priority="err", lines=5)

    _, remote = asked(tmp_path, SPEC, "gpu01", question)

    assert remote[-6:] == [
        "--unit=slurmd",
        "--unit=a b; reboot",
        "--since=-1h",
        "--until=2026-11-22 10:00",
        "--priority=err",
        "--lines=5",
    ]


def test_jump_hosts_are_on_the_way(tmp_path: Path) -> None:
    ssh, _ = asked(tmp_path, SPEC.replace("user: ubuntu", "user: root, jump_host: bastion"), "gpu01", Question())

    assert any(word.startswith("ProxyCommand=ssh") and "bastion" in word for word in ssh)


def test_a_node_that_there_is_not_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "cluster.yml").write_text(SPEC, encoding="utf-8")

    assert run(["-C", str(tmp_path), "logs", "gpu09"]) == ExitCode.INVALID_INPUT
