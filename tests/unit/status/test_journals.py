"""How the journals of nodes are asked for on the monitoring host."""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from deepopsctl.cli.main import run_command_line
from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.selection import select_nodes
from deepopsctl.errors import ExitCode
from deepopsctl.node_programs.services.log_collector.places import DIRECTORY, files_of
from deepopsctl.status.journals import FIELDS, NOTHING_COLLECTED, Question, lines_of, pass_on, ssh_command
from tests.support.files import write_program

SPEC = """\
schema: 1
cluster: {name: hpc, user: ubuntu}
nodes:
  - {names: ctl1, addresses: 192.0.2.1, roles: [controller]}
  - {names: mon1, addresses: 192.0.2.2, roles: [monitoring]}
  - {names: "gpu[01-04]", addresses: "192.0.2.[11-14]", roles: [compute]}
"""


def asked(place: Path, spec: str, nodes: str, question: Question) -> tuple[list[str], list[str]]:
    """The command for ssh, and what it runs there."""
    (place / "cluster.yml").write_text(spec, encoding="utf-8")
    directory = ClusterDir.open(place)
    cluster = directory.cluster()
    with ssh_command(directory, cluster, select_nodes([nodes], cluster), question) as command:
        return command.argv[:-1], shlex.split(command.argv[-1])


def test_the_node_that_is_named_for_monitoring_is_asked(tmp_path: Path) -> None:
    ssh, _ = asked(tmp_path, SPEC, "gpu01", Question())

    assert ssh[-4:] == ["-l", "ubuntu", "--", "192.0.2.2"]
    assert f'UserKnownHostsFile="{tmp_path}/known_hosts"' in ssh
    assert f'IdentityFile="{tmp_path}/ssh/id_ed25519"' in ssh


def test_without_one_the_first_controller_is_asked(tmp_path: Path) -> None:
    ssh, _ = asked(tmp_path, SPEC.replace("monitoring", "login"), "gpu01", Question())

    assert ssh[-1] == "192.0.2.1"


def test_jump_hosts_are_on_the_way(tmp_path: Path) -> None:
    ssh, _ = asked(tmp_path, SPEC.replace("user: ubuntu", "user: root, jump_host: bastion"), "gpu01", Question())

    assert any(word.startswith("ProxyCommand=ssh") and "bastion" in word for word in ssh)


def test_nodes_are_told_apart_by_the_files_that_their_certificates_gave_them(tmp_path: Path) -> None:
    _, remote = asked(tmp_path, SPEC, "gpu[02-03]", Question())

    assert remote[:4] == ["sudo", "-n", "sh", "-c"]
    assert f'ln -s -t "$links" {files_of("gpu02")} {files_of("gpu03")} &&' in remote[4]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Collected journals of gpu02 and gpu04, and a journalctl that prints its options and the files that it can see."""
    collected = tmp_path / "collected"
    collected.mkdir()
    for name in ("gpu02", "gpu04"):
        (collected / f"{Path(files_of(name)).name[:-5]}.journal").write_text(f"of {name}\n", "utf-8")
    refuses = 'for word; do grep -qs -e damaged -- "${word#--file=}" && exit 1; done\n'
    shown = 'echo "$@"; cat "${3#--file=}" 2>&- || (cd "${3#--directory=}" && cat *.journal; pwd)'
    program = write_program(tmp_path / "bin" / "journalctl", refuses + shown)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    return collected


def run_there(directory: Path, collected: Path, question: Question) -> subprocess.CompletedProcess[str]:
    """What the shell of the monitoring host makes of a query for gpu02 and gpu03."""
    _, remote = asked(directory, SPEC.replace("user: ubuntu", "user: root"), "gpu[02-03]", question)
    return subprocess.run([word.replace(DIRECTORY, str(collected)) for word in remote], capture_output=True, text=True)


def test_a_node_that_has_sent_nothing_hides_no_other_nodes_journal(tmp_path: Path, host: Path) -> None:
    options, *lines, links = run_there(tmp_path, host, Question(lines=5)).stdout.splitlines()

    assert options == f"--no-pager --quiet --directory={links} --lines=5"
    assert lines == ["of gpu02"]
    assert not Path(links).exists()


def test_followed_are_the_files_themselves_that_there_are(tmp_path: Path, host: Path) -> None:
    options, *lines = run_there(tmp_path, host, Question(follow=True)).stdout.splitlines()

    (file,) = (path for path in host.iterdir() if path.read_text("utf-8") == "of gpu02\n")
    assert options == f"--no-pager --quiet --file={file} --follow"
    assert lines == ["of gpu02"]


def test_following_ignores_a_damaged_file_and_names_it(tmp_path: Path, host: Path) -> None:
    damaged = host / f"{Path(files_of('gpu03')).name[:-5]}@1.journal"
    damaged.write_text("damaged", "utf-8")

    done = run_there(tmp_path, host, Question(follow=True))

    assert done.stdout.splitlines()[1:] == ["of gpu02"]
    assert done.stderr == f"{damaged} is damaged, ignoring file\n"


@pytest.mark.parametrize("follow", [False, True])
def test_where_nothing_is_collected_no_other_journal_is_read(tmp_path: Path, host: Path, follow: bool) -> None:
    done = run_there(tmp_path, host / "gone", Question(follow=follow))

    assert done.returncode == NOTHING_COLLECTED
    assert done.stdout == ""


def test_what_was_asked_for_is_journalctls_to_evaluate_and_no_shells(tmp_path: Path) -> None:
    question = Question(("slurmd", "a b; reboot"), since="-1h", until="2026-11-22 10:00", priority="err", lines=5)

    _, remote = asked(tmp_path, SPEC, "gpu01", question)

    assert remote[-6:] == [
        "--unit=slurmd", "--unit=a b; reboot", "--since=-1h", "--until=2026-11-22 10:00", "--priority=err", "--lines=5",
    ]  # fmt: skip


def test_a_node_that_there_is_not_and_an_object_without_an_end_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cluster.yml").write_text(SPEC, encoding="utf-8")

    assert run_command_line(["-C", str(tmp_path), "logs", "gpu09"]) == ExitCode.INVALID_INPUT
    capsys.readouterr()
    assert run_command_line(["-C", str(tmp_path), "logs", "gpu01", "--follow", "--json"]) == ExitCode.USAGE
    assert "--json and --follow exclude each other" in json.loads(capsys.readouterr().out)["errors"][0]["message"]


def test_objects_are_asked_for_whole_and_with_no_more_than_is_named() -> None:
    assert Question(lines=2, objects=True).arguments() == [
        "--lines=2", "--output=json", "--all",
        "--output-fields=_HOSTNAME,_SYSTEMD_UNIT,SYSLOG_IDENTIFIER,PRIORITY,MESSAGE",
    ]  # fmt: skip


def test_a_line_has_its_time_in_utc_and_what_journald_knows_of_it() -> None:
    values = ("gpu01", "slurmd.service", "slurmd", "3", "no such user\u2028\u2026")
    entry = {"__REALTIME_TIMESTAMP": "1795341296123456", **dict(zip(FIELDS.values(), values, strict=True))}

    assert lines_of(json.dumps(entry, ensure_ascii=False).encode() + b"\n") == [
        {
            "time": "2026-11-22T09:54:56.123456+00:00",
            "host": "gpu01",
            "unit": "slurmd.service",
            "identifier": "slurmd",
            "priority": 3,
            "message": "no such user\u2028\u2026",
        }
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [([72, 105, 255], "Hi\ufffd"), (["one", [116, 119, 111]], "one\ntwo"), (None, ""), ("\u2026", "\u2026")],
    ids=["bytes", "twice", "none", "text"],
)
def test_a_message_is_text_however_journalctl_writes_it(settings: object, message: str) -> None:
    (line,) = lines_of(json.dumps({"__REALTIME_TIMESTAMP": "1000000", "MESSAGE": settings}).encode())

    assert (line["message"], line["unit"], line["priority"]) == (message, "", None)


@pytest.mark.parametrize(("text", "code"), [("", 0), ("a\nb\n", 0), ("", 255), ("half", 1)])
def test_what_is_printed_is_passed_on_and_known_to_be_there(text: str, code: int) -> None:
    out = io.BytesIO()

    done = pass_on([sys.executable, "-c", f"print({text!r}, end=''); exit({code})"], out)

    assert done == (code, bool(text))
    assert out.getvalue() == text.encode()


def test_who_has_read_enough_waits_for_no_more() -> None:
    class Closed(io.BytesIO):
        def write(self, _: object) -> int:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        pass_on([sys.executable, "-c", "import os, time; os.write(1, b'x'); time.sleep(600)"], Closed())
