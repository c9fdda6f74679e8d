from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deepopsctl.cli import main
from deepopsctl.cli.main import COMMANDS, cli
from deepopsctl.cluster.create import create_cluster
from deepopsctl.errors import ControlMachineError, ExitCode, InputError, Problem
from tests.data.doctor_samples import cluster

HEAVY = ("pydantic", "ansible_runner", "ansible", "rich", "ClusterShell", "yaml", "asyncio")
LOADED = """
import json
import sys
from deepopsctl.cli.main import run_command_line
heavy, calls = json.load(sys.stdin)
for arguments in calls:
    code = run_command_line(arguments)
    print(arguments, code, [name for name in heavy if name in sys.modules], file=sys.stderr)
"""


def test_help_of_every_command_imports_nothing_heavy() -> None:
    calls = [["--help"], ["-h"], ["--version"], *([name, "--help"] for name in COMMANDS)]
    done = subprocess.run(
        [sys.executable, "-c", LOADED], input=json.dumps([HEAVY, calls]), capture_output=True, text=True, check=True
    )
    assert done.stderr.splitlines() == [f"{call} 0 []" for call in calls]


def test_help_lists_every_command_with_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run_command_line(["--help"]) == ExitCode.OK
    out = capsys.readouterr().out
    for name, summary in COMMANDS.items():
        assert f"  {name} " in out
        assert summary in out


@pytest.mark.parametrize(
    ("word", "answer"), [("depoly", "did you mean 'deploy'?"), ("xyzzy", "the commands are: init, inventory, ssh")]
)
def test_an_unknown_command_is_answered_with_the_likely_one(
    word: str, answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run_command_line([word]) == ExitCode.USAGE
    assert answer in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("slrm", "did you mean slurm? (known: package_cache, nvidia, storage, slurm, slurm_rest"),
        ("x", "known: package_cache, nvidia, storage"),
    ],
)
def test_an_unknown_component_is_answered_with_the_likely_one(
    word: str, answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("deploy", "plan"):
        assert main.run_command_line([command, word]) == ExitCode.USAGE
        assert f"there is no component '{word}'; {answer}" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", " ", ",", " , ", ":", "\t\n", "!", "gpu01,!", "gpu01:&", "~", "@"])
@pytest.mark.parametrize(
    "words",
    [
        ["deploy", "--limit"], ["plan", "--limit"], ["doctor", "--limit"], ["validate", "--limit"], ["logs"],
        ["ssh", "setup", "--limit"], ["ssh", "setup", "--accept-new-keys"],
        ["node", "drain", "--reason", "x"], ["node", "resume"], ["node", "add"], ["node", "remove"],
        ["node", "replace"],
    ],
)  # fmt: skip
def test_nodes_that_are_named_by_nothing_are_never_all_of_them(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--limit "$NODES"` where NODES is not set."""
    assert main.run_command_line([*words, text]) == ExitCode.USAGE
    assert "names no node" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("tags", "meant"),
    [("nosuchtag", "known: slurm"), ("slrum", "did you mean slurm?"), ("slurm,slurmd", "'slurmd'"), ("", "''")],
)
def test_a_tag_that_would_leave_out_the_comparison_of_nodes_is_refused(
    tags: str, meant: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = create_cluster(tmp_path / "hpc", cluster())

    assert main.run_command_line(["-C", str(directory.path), "deploy", "slurm", "--tags", tags]) == ExitCode.USAGE
    assert meant in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["deploy", "--timeout", "nan"], ["plan", "--timeout", "inf"], ["validate", "--timeout", "1e300"],
        ["node", "drain", "gpu01", "--reason", "x", "--timeout", "nan"], ["deploy", "--forks", "9" * 30],
        ["status", "--node-timeout", "9" * 30], ["deploy", "-u", "a\nb"], ["plan", "-u", "-oProxyCommand=x"],
        ["node", "drain", "gpu01", "--reason", " \n"], ["node", "drain", "gpu01", "--reason", "x" * 10_000],
    ],
)  # fmt: skip
def test_numbers_without_end_and_names_that_are_none_are_refused(words: list[str]) -> None:
    assert main.run_command_line(words) == ExitCode.USAGE


def test_usage_errors_are_json_where_json_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run_command_line(["deploy", "slrm", "--json"]) == ExitCode.USAGE
    result = json.loads(capsys.readouterr().out)
    assert result["ok"] is False
    assert "slrm" in result["errors"][0]["message"]


def test_an_environment_variable_has_the_name_of_its_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cluster.yml").write_text("")
    monkeypatch.setenv("DEEPOPSCTL_RUNS_LIST_JSON", "1")
    monkeypatch.setenv("DEEPOPSCTL_PEOPLE_EXPIRE_ON", "someday")

    assert main.run_command_line(["-C", str(tmp_path), "runs", "list"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["runs"] == []
    assert main.run_command_line(["-C", str(tmp_path / "none"), "runs", "list"]) == ExitCode.INVALID_INPUT
    assert json.loads(capsys.readouterr().out)["ok"] is False
    assert main.run_command_line(["people", "expire", "alice"]) == ExitCode.USAGE
    assert "someday" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["-C", "{}", "runs", "list"], ["runs", "-C", "{}", "list"], ["runs", "list", "-C", "{}"]]
)
def test_the_directory_may_stand_before_or_after_the_command(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cluster.yml").write_text("")
    assert main.run_command_line([word.format(tmp_path) for word in arguments]) == ExitCode.OK
    assert "there are no runs yet" in capsys.readouterr().err


def test_the_directory_comes_from_the_environment_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cluster.yml").write_text("")
    monkeypatch.setenv("DEEPOPSCTL_CLUSTER", str(tmp_path))
    assert main.run_command_line(["runs", "list", "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out) == {"schema": 1, "command": "runs list", "ok": True, "runs": []}


@pytest.mark.parametrize(
    ("words", "count"), [([], 0), (["-v"], 1), (["-vv"], 2), (["-v", "-v", "--verbose"], 3), (["-e", "v"], 0)]
)
def test_verbosity_is_counted_for_errors_as_well(words: list[str], count: int) -> None:
    assert main._verbosity(words) == count


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """Make the command line raise what the test puts in here."""
    errors: list[BaseException] = []

    def main(**arguments: object) -> None:
        raise errors[0]

    monkeypatch.setattr(cli, "main", main)
    return errors


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ControlMachineError("no ssh", "install it"), 5, "error: no ssh\nhint: install it\n"),
        (InputError([Problem("a:1", "odd"), Problem("b:2", "worse", "mend")]), 3,
         "error: a:1: odd\nerror: b:2: worse\nhint: mend\n"),
        (PermissionError(13, "Permission denied", "/x"), 5,
         "error: /x: Permission denied\nhint: check its owner and mode: ls -l\n"),
        (OSError(28, "No space left on device", "/x"), 5,
         "error: /x: No space left on device\nhint: make room: df -h says which file system is full\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (ValueError("odd"), 1,
         "error: ValueError: odd\nhint: this is a bug in deepopsctl: please report it, with the output of -vv\n"),
    ],
)  # fmt: skip
def test_every_error_becomes_a_sentence_and_an_exit_code(
    failing: list[BaseException], error: BaseException, code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    failing.append(error)
    assert main.run_command_line([]) == code
    assert capsys.readouterr().err == text


def test_of_identical_problems_a_few_are_shown_and_the_others_counted(
    failing: list[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    same = [Problem(f"nodes.csv:{row}", f"gpu{row}.example.com has a domain", "name it") for row in range(1000)]
    failing.append(InputError([Problem("nodes.csv:1", "unknown column"), *same]))

    main.run_command_line([])

    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 + 2 * 10
    assert lines[-2] == "error: nodes.csv:9: gpu9.example.com has a domain (and 990 more like it: --json has all)"
    main.run_command_line(["init", "--json"])
    assert len(json.loads(capsys.readouterr().out)["errors"]) == 1001


def test_a_full_standard_output_is_reported_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "cluster.yml").write_text("")
    program = [sys.executable, "-m", "deepopsctl", "-C", str(tmp_path), "runs", "list", "--json"]

    with Path("/dev/full").open("w") as full:
        done = subprocess.run(program, stdout=full, stderr=subprocess.PIPE, text=True)

    assert done.returncode == ExitCode.CONTROL_MACHINE
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_while_the_command_line_is_loaded_is_ctrl_c() -> None:
    """What is imported last sends it before it is there."""
    script = (
        "import os, signal, sys\n"
        # a shell may have started the tests in its background, without it
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Finder:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'click': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from deepopsctl.__main__ import main\n"
        "main()\n"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_a_traceback_comes_with_vv_only(failing: list[BaseException], capsys: pytest.CaptureFixture[str]) -> None:
    failing.append(ValueError("odd"))
    main.run_command_line(["deploy", "-vv"])
    assert "Traceback" in capsys.readouterr().err


def test_a_reader_that_has_enough_is_no_error() -> None:
    line = [sys.executable, "-m", "deepopsctl", "--help"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_no_colour_where_the_environment_asks_for_none() -> None:
    line = [sys.executable, "-c", "import click; from deepopsctl.cli.output import color; print(color())"]
    for value, expected in (("1", "False\n"), ("", "None\n")):
        done = subprocess.run(line, capture_output=True, text=True, check=True, env={"NO_COLOR": value})
        assert done.stdout == expected


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_reader_that_is_gone_does_not_hide_the_exit_code(tmp_path: Path, stream: str) -> None:
    """`deepopsctl deploy 2>&1 | head`: a failed command has not succeeded."""
    program = [sys.executable, "-m", "deepopsctl", "-C", str(tmp_path / "missing"), "status", "--json"]
    reader, writer = os.pipe()
    os.close(reader)
    out, err = (writer if stream == name else subprocess.PIPE for name in ("stdout", "stderr"))
    with os.fdopen(writer):
        done = subprocess.run(program, stdout=out, stderr=err, text=True)

    assert done.returncode == ExitCode.INVALID_INPUT
    assert "Traceback" not in f"{done.stdout}{done.stderr}"
    assert "BrokenPipe" not in f"{done.stdout}{done.stderr}"
