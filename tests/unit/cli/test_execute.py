from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import click
import pytest

from deepopsctl.cli import execute, main
from deepopsctl.cli.variables import names_in, parse_extra_vars
from deepopsctl.cli.views.run import failure_lines, node_table, report_lines
from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.content import content_dir
from deepopsctl.errors import ExitCode, InputError
from deepopsctl.run.events import Change, Totals
from deepopsctl.run.outcome import Failure, RunOutcome, Verdict
from deepopsctl.run.request import RunRequest
from tests.support.problems import problems_of
from tests.support.runs import run_of

BROKEN = Failure("gpu01", "slurm", "munge : Write the key", "no space\nat all", "make room")
GONE = Failure("gpu03", "slurm", "Gather", "no route", "is it up?", unreachable=True)


def plain(lines: Iterable[str]) -> list[str]:
    return [click.unstyle(line) for line in lines]


def outcome(*failures: Failure, code: int = 0, stopped: Verdict | None = None, others: bool = True) -> RunOutcome:
    """A deploy in which these nodes failed, and gpu02 was changed unless there are no others."""
    counts = {"gpu01": Totals(ok=3, failed=1), "gpu02": Totals(ok=4, changed=2), "gpu03": Totals(unreachable=1)}
    names = {failure.host for failure in failures} | ({"gpu02"} if others else set())
    hosts = {host: counts[host] for host in names if host in counts}
    run_dir = Path("/c/runs/20261121-093012-deploy")
    return run_of(*failures, directory=run_dir, command="deploy", hosts=hosts, code=code, stopped=stopped)


def report(result: RunOutcome, **wanted: bool) -> list[str]:
    return plain(report_lines(result, RunRequest(ClusterDir(Path("/c")), "slurm", **wanted)))  # type: ignore[arg-type]  # any of its fields


def test_nodes_with_the_same_numbers_share_a_row() -> None:
    hosts = [("gpu01", Totals(ok=3)), ("gpu02", Totals(ok=3)), ("ctl1", Totals(ok=14, changed=2))]
    assert node_table(hosts) == [
        "nodes       ok  changed  failed  unreachable",
        "gpu[01-02]   3        0       0            0",
        "ctl1        14        2       0            0",
    ]


def test_a_thousand_different_nodes_fit_into_few_rows() -> None:
    assert len(node_table([(f"n{number}", Totals(ok=number, changed=number % 2)) for number in range(1000)])) == 3


def test_the_same_failure_on_several_nodes_is_shown_once() -> None:
    other = Failure("gpu02", BROKEN.component, BROKEN.task, BROKEN.message, BROKEN.hint)
    assert plain(failure_lines([BROKEN, other, GONE])) == [
        "failed: gpu[01-02]: slurm: Write the key",
        "    no space",
        "    at all",
        "    hint: make room",
        "unreachable: gpu03: slurm: Gather",
        "    no route",
        "    hint: is it up?",
    ]


def test_many_unreachable_nodes_are_one_message_though_each_has_its_own_address() -> None:
    def gone(number: int) -> Failure:
        message = f"timed out\nConnection to 10.0.1.{number} port 22 timed out"
        return Failure(f"gpu{number}", "slurm", "Gather", message, "is it up?", unreachable=True)

    assert plain(failure_lines([gone(11), gone(12)])) == [
        "unreachable: gpu[11-12]: slurm: Gather",
        "    timed out",
        "    Connection to ADDRESS port 22 timed out",
        "    hint: is it up?",
    ]
    assert "    Connection to 10.0.1.11 port 22 timed out" in plain(failure_lines([gone(11)]))


def test_a_run_that_reached_nobody_does_not_say_that_it_was_done() -> None:
    gone, alone = outcome(GONE, code=4), outcome(GONE, code=4, others=False)

    assert report(gone)[-1].startswith("deploy: done, but for nodes that did not answer after")
    assert report(alone)[-1].startswith("deploy: no node answered after 1.0 s, nothing changed")


def test_the_last_line_has_the_verdict_the_run_and_where_to_look() -> None:
    assert report(outcome())[-1] == (
        "deploy: done after 1.0 s, 1 of 1 node changed; details: deepopsctl -C /c runs show 20261121-093012-deploy"
    )


def test_failures_come_after_the_table_and_the_log_is_named() -> None:
    lines = report(outcome(BROKEN, code=2))
    assert lines.index("failed: gpu01: slurm: Write the key") > lines.index(lines[0])
    assert lines[-2] == "log: /c/runs/20261121-093012-deploy/stdout.log"
    assert lines[-1].startswith("deploy: failed after")


def test_a_stopped_run_says_what_is_undone() -> None:
    stopped = outcome(stopped=Verdict.INTERRUPTED)
    result = report(replace(stopped, at="slurm: Install", pending=("gpu01", "gpu02")))
    assert any(line.startswith("undone: slurm: Install on gpu[01-02], and all that comes after it") for line in result)
    assert "the same command finishes it" in "\n".join(result)


def test_a_check_speaks_of_what_would_change() -> None:
    last = report(outcome(), check=True)[-1]
    assert last.startswith("deploy --check: done after")
    assert "1 of 1 node would change; nothing was changed" in last


def test_the_end_says_what_was_done() -> None:
    changes = [
        Change(host, "slurm", "package", name, "install") for host in ("n1", "n2") for name in ("slurmd", "munge")
    ]
    changes += [Change("n1", "slurm", "file", "/etc/a", "write"), Change("n1", "slurm", "unit", "slurmd", "restart")]
    done = outcome()
    done = replace(done, summary=replace(done.summary, changes=tuple(changes)))

    assert "1 of 1 node changed (2 packages, 1 file, 1 service); details" in report(done)[-1]


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (outcome(), 0),
        (outcome(BROKEN, code=2), 1),
        (outcome(GONE, code=4), 4),
        (outcome(BROKEN, GONE, code=2), 1),
        (outcome(code=250), 1),
        (outcome(Failure("", "", "", "odd playbook", ""), code=4), 1),
        (outcome(BROKEN, code=254, stopped=Verdict.TIMEOUT), 124),
        (outcome(code=254, stopped=Verdict.INTERRUPTED), 130),
    ],
)
def test_the_exit_code_follows_what_happened(result: RunOutcome, code: int) -> None:
    assert result.exit_code == code
    assert result.as_object()["ok"] is (code == 0)


def test_the_json_object_has_the_documented_keys() -> None:
    result = outcome(BROKEN).as_object()
    assert list(result) == [
        "schema", "command", "ok", "verdict", "run", "elapsed_s", "hosts", "failures", "slowest", "warnings",
        "left_out",
        "changes",
    ]  # fmt: skip
    failures = result["failures"]
    assert isinstance(failures, list)
    assert list(failures[0]) == ["host", "component", "task", "message", "hint"]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=1 b='two words'", {"a": "1", "b": "two words"}),
        ("a=b=c", {"a": "b=c"}),
        ('{"a": {"b": [1]}}', {"a": {"b": [1]}}),
        ("{a: yes, b: text}", {"a": True, "b": "text"}),
        ("{day: 2026-12-01, ports: {80: web, ssh: 22}}", {"day": "2026-12-01", "ports": {"80": "web", "ssh": 22}}),
        # what deepopsctl knows is of its type, as Ansible alone would not make it
        ("grafana_enabled=false", {"grafana_enabled": False}),
        ("monitoring_enabled=No nvidia_dcgm=1", {"monitoring_enabled": False, "nvidia_dcgm": True}),
        ('{"grafana_enabled": "false"}', {"grafana_enabled": False}),
        ("nfs_server_threads=8", {"nfs_server_threads": 8}),
        ("validate_storage_seconds=2.5", {"validate_storage_seconds": 2.5}),
        ("modules_paths=/opt/a,/opt/b", {"modules_paths": ["/opt/a", "/opt/b"]}),
        ("modules_paths=", {"modules_paths": []}),
        ('\'cuda_toolkits=["12.8", "13.0"]\'', {"cuda_toolkits": ["12.8", "13.0"]}),
        ("'slurm_config={MaxArraySize: 7}'", {"slurm_config": {"MaxArraySize": 7}}),
        ("nvidia_driver_branch=580", {"nvidia_driver_branch": "580"}),
        ("'grafana_enabled={{ no_one_knows }}'", {"grafana_enabled": "{{ no_one_knows }}"}),
    ],
)
def test_variables_are_read_as_ansible_reads_them(text: str, values: dict[str, object]) -> None:
    assert parse_extra_vars([text], content_dir()) == (values,)


@pytest.mark.parametrize(
    "text",
    [
        "grafana_enabled=maybe", "grafana_enabled=", "monitoring_drain_limit=two", "nfs_server_threads=1.5",
        "slurm_config=hello", "'slurm_config=[a]'", "slurm_accounts_users=ada", "'node_common_time_servers={a: b}'",
        "nvidia_driver_source=reposotory", "nfs_server_threads=" + "9" * 40, "{slurm_config: hello}",
        "{slurm_accounts_names: a}", "{a: 1, a: 2}", "{slurm_config: {A: 1, A: 2}}", "{grafana_enabled: [false]}",
        "'slurm_config={a: &a [1], b: *c}'", "{a: !!set {b, c}}", "@vars.yml",
    ],
)  # fmt: skip
def test_a_value_that_its_setting_can_not_have_is_refused_before_the_run(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vars.yml").write_text("a: 1\nslurm_config: hello\n")
    monkeypatch.chdir(tmp_path)
    problem = problems_of(parse_extra_vars, [text], content_dir())[0]
    assert problem.where == ("vars.yml:2" if text.startswith("@") else "-e")


def test_a_file_of_variables_is_named_from_where_the_user_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my.yml").write_text("a: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  61\n")
    monkeypatch.chdir(tmp_path)
    assert parse_extra_vars(["@my.yml"], content_dir()) == (tmp_path / "my.yml",)


@pytest.mark.parametrize("text", ["slurm_users='[{name: ada}]'", "{slurm_users: [{name: ada}]}", "@old.yml"])
def test_a_setting_with_its_old_name_has_the_new_one_too(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "old.yml").write_text("slurm_users: [{name: ada}]\n")
    monkeypatch.chdir(tmp_path)
    first, second = parse_extra_vars([text], content_dir())
    assert (names_in(first), second) == (("slurm_users",), {"slurm_accounts_users": "{{ slurm_users }}"})


@pytest.mark.parametrize("text", ["word", "=1", "1a=2", "{a: [}", "a='open", "@/no/such/file", "", "{a}b"])
def test_what_sets_no_variable_is_refused(text: str) -> None:
    assert problems_of(parse_extra_vars, [text], content_dir())[0].where == "-e"


@pytest.mark.parametrize("text", ["- a\n", "a: [\n", "just words"])
def test_a_file_that_holds_no_variables_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "vars.yml").write_text(text)
    with pytest.raises(InputError, match=r"vars\.yml"):
        parse_extra_vars([f"@{tmp_path}/vars.yml"], content_dir())


def test_ctrl_c_in_the_report_of_a_run_leaves_one_json_object(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> Iterator[str]:
        raise KeyboardInterrupt

    def command(**_: object) -> int:
        request = RunRequest(ClusterDir(Path("/c")), "slurm")
        return execute.run_and_report(request, (), verbosity=0, as_json=True)

    monkeypatch.setattr(execute, "run_watched", lambda *_, **__: outcome())
    monkeypatch.setattr(execute, "report_lines", interrupted)
    monkeypatch.setattr(main.cli, "main", command)

    assert main.run_command_line(["deploy", "--json"]) == ExitCode.INTERRUPTED
    assert json.loads(capsys.readouterr().out)["ok"] is False


def test_a_huge_message_of_a_node_is_cut_to_its_end() -> None:
    lines = report(outcome(replace(BROKEN, message="x\n" * 30_000 + "the reason"), code=2))

    assert "    the reason" in lines
    assert sum(map(len, lines)) < 20_000
