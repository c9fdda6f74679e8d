"""The storage suite without a cluster: agents as processes of this machine, on directories that they share or don't."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.node_programs import shipping
from deepopsctl.node_programs._shared import command
from deepopsctl.node_programs._slurm_jobs import session
from deepopsctl.node_programs.suites.validate_storage import (
    agent_pool,
    children,
    inputs,
    operations,
    rate_trials,
    suite,
    trials,
)
from tests.support.cluster import wait_until
from tests.support.files import write_program
from tests.support.processes import runs

NODES = ("n1", "n2", "n3")
PROGRAM = b64encode(shipping.archive("validate_storage")).decode()
BOUNDS = inputs.Bounds(size_mib=1, seconds=0.1, answer_s=20.0, files=20)


@pytest.fixture(scope="module")
def pool() -> Iterator[Any]:
    """Three agents on this machine; no job is needed for them."""
    actual = agent_pool.AgentPool(session.Session("storage", "abc123", "nobody"), PROGRAM)
    for name in NODES:
        actual.add_local(name)
    yield actual
    actual.stop()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long enough to see that a rename takes place."""
    monkeypatch.setattr(trials, "_RENAMING_S", 0.3)


def context(pool: Any, path: Path, nodes: tuple[str, ...] = NODES, **changes: Any) -> Any:
    settings = {"shared": True, **changes}
    entry = inputs.Expected("data", settings.pop("type", "nfs"), str(path), "srv:/data", "nfs", **settings)
    return trials.TrialContext(entry, nodes, dict.fromkeys(nodes, inputs.Seen()), pool, "abc123", BOUNDS)


def tried(context: Any) -> dict[tuple[str, str], dict[str, str]]:
    """All trials of an entry, by check and target."""
    suite._run_trials(context, suite.Inputs("hpc", "login1", NODES, {}, {}, BOUNDS))
    suite._remove_directory(context)
    return {(check["name"], check["target"]): check for check in context.checks}


def test_nodes_that_share_a_directory_pass_everything_and_leave_nothing(pool: Any, tmp_path: Path) -> None:
    actual = tried(context(pool, tmp_path))

    # how fast one is beside another is this busy machine's own matter
    quick = {kind.name for kind in rate_trials.RATE_TYPES}
    assert {check["status"] for (name, _), check in actual.items() if name not in quick} == {"pass"}, actual
    rate_names = [name for rate in rate_trials.RATE_TYPES for name in (rate.name, rate.together)]
    assert {name for name, _target in actual} == {trials.WRITE, *trials.TOGETHER, *rate_names}
    assert {target for name, target in actual if name == trials.WRITE} == {f"n{n}/data" for n in (1, 2, 3)}
    assert list(tmp_path.iterdir()) == []


def test_a_node_of_its_own_is_measured_and_compared_with_nobody(pool: Any, tmp_path: Path) -> None:
    actual = tried(context(pool, tmp_path, ("n1",)))

    assert actual[trials.WRITE, "n1/data"]["status"] == "pass"
    assert {actual[name, "n1/data"]["status"] for name in trials.TOGETHER} == {"skip"}
    assert list(tmp_path.iterdir()) == []


def test_one_that_sees_another_directory_is_named(pool: Any, tmp_path: Path) -> None:
    """The second agent is told to look elsewhere, as a node would with another file system under the same path."""
    other = tmp_path / "other"
    other.mkdir()
    where = context(pool, tmp_path / "data")
    (tmp_path / "data").mkdir()
    straying = where.order

    def order(act: str, to: Any, limit: float = 0, **asked: Any) -> Any:
        each = {**asked.pop("each", {})}
        for node in NODES:
            each[node] = {**each.get(node, {}), "place": str(other if node == "n2" else tmp_path / "data")}
        fixed = {key: _moved(value, tmp_path / "data") for key, value in asked.items()}
        return straying(act, to, limit, each=each, **fixed)

    where.order = order
    (other / where.name).mkdir()
    (other / where.name / "locked").write_text("")
    actual = tried(where)

    failed = {name for (name, target), check in actual.items() if check["status"] == "fail" and target == "n2/data"}
    assert {trials.VISIBLE, trials.NAMES, trials.RENAME, trials.LOCK, trials.FLOCK} <= failed, actual
    assert actual[trials.LOCK, "n2/data"]["message"] == "it got the lock that n1 was holding"
    assert actual[trials.VISIBLE, "n3/data"]["status"] == "fail"
    assert actual[trials.WRITE, "n1/data"]["status"] == "pass"


def _moved(value: Any, shared: Path) -> Any:
    if isinstance(value, list):
        return value
    return value.replace(str(shared), "{place}") if isinstance(value, str) else value


def test_a_directory_that_nobody_may_write_to_is_reported(pool: Any, tmp_path: Path) -> None:
    actual = tried(context(pool, tmp_path, user_writable=str(tmp_path / "missing")))

    assert {check["status"] for check in actual.values()} == {"fail"}
    assert str(tmp_path / "missing") in actual[trials.WRITE, "n1/data"]["message"]


def test_a_mount_that_should_be_read_only_and_is_not_fails(pool: Any, tmp_path: Path) -> None:
    where = context(pool, tmp_path, options=("ro",))
    ordered = where.order
    names: set[str] = set()

    def order(act: str, to: Any, limit: float = 0, **asked: Any) -> Any:
        names.update(asked["name"].format(node=node) for node in to)
        return ordered(act, to, limit, **asked)

    where.order = order
    trials.read_only(where)

    assert {(check["status"], check["measured"]) for check in where.checks} == {("fail", "written")}
    assert len(names) == len(NODES), "two nodes that write one name at the same time get in each other's way"
    assert list(tmp_path.iterdir()) == []


def test_trouble_with_one_entry_is_reported_and_stops_no_other(
    pool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_options: Any) -> None:
        raise KeyError("never")

    monkeypatch.setattr(trials, "visible", fail)
    entry = context(pool, tmp_path).entry
    everywhere = {node: {"data": inputs.Seen()} for node in NODES}
    asked = suite.Inputs("hpc", "login1", NODES, dict.fromkeys(NODES, (entry,)), everywhere, BOUNDS)

    actual = suite._entry(asked, entry, pool, "abc123")

    assert (actual[-1]["target"], actual[-1]["message"]) == ("data", "KeyError('never')")
    assert list(tmp_path.iterdir()) == []


def test_a_node_that_hangs_costs_its_limit_is_named_once_and_stops_no_other(pool: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "hangs")
    where = context(pool, tmp_path)

    # the others have all the time that they may need
    hangs = where.order("read", ["n2"], 1.0, path=str(tmp_path / "hangs"))
    works = where.order("read", ["n1", "n3"], path=str(tmp_path / "x"))
    first = {node: answer for answers in where.ask(hangs, works) for node, answer in answers.items() if node != "n2"}
    second = where.order_on("base", [node for node in NODES if node in where.nodes], path=str(tmp_path), wanted="")

    assert set(first) == set(second) == {"n1", "n3"}
    assert [check["target"] for check in where.checks] == ["n2/data"]
    assert where.checks[0]["name"] == "storage-answers"
    assert where.checks[0]["message"] == "no answer within 1 s: the file system hangs"


@pytest.mark.parametrize("how", ["input ends", "TERM"])
def test_an_agent_whose_job_ends_removes_what_it_made(tmp_path: Path, how: str) -> None:
    running = session.Running(agent_pool.agent_argv("n1"), command.slurm_environment())
    job = agent_pool.AgentJob(["n1"], running, PROGRAM)
    wait_until("the agent speaks", lambda: job.has_answered("hello", ["n1"]))
    pid = job.answers["hello", "n1"]["pid"]
    mine = tmp_path / (operations.PREFIX + "abc123")
    orders = [
        agent_pool.Order("mine", ["n1"], 5, {"directories": [str(mine), str(tmp_path / "other")]}),
        agent_pool.Order("make", ["n1"], 5, {"directory": str(mine)}),
        agent_pool.Order("write", ["n1"], 5, {"path": f"{mine}/f", "label": "x", "version": 1}),
        agent_pool.Order("hold", ["n1"], 5, {"path": f"{mine}/f", "lock_type": "fcntl", "key": "k"}),
    ]
    (tmp_path / "other").mkdir()
    running.send("".join(order.line(number) for number, order in enumerate(orders)), more=True)
    wait_until("all is done", lambda: job.has_answered(3, ["n1"]))
    assert mine.is_dir()

    if how == "TERM":
        os.kill(pid, signal.SIGTERM)
    else:
        running.release()

    assert running.ended(30) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


class TestChildren:
    def test_an_error_is_reported_with_its_name_and_file(self) -> None:
        actual = children.attempt(lambda: {"never": Path("/nowhere").stat()}, 20)

        assert actual == {"error": "No such file or directory (/nowhere)", "errno": "ENOENT"}

    def test_one_that_does_not_answer_is_given_up_with_what_it_started(self, tmp_path: Path) -> None:
        started = tmp_path / "pid"
        script = f"echo $$ > {started}; exec sleep 300"
        actual = children.attempt(lambda: {"never": subprocess.run(["sh", "-c", script])}, 2)

        assert actual == {"hung": 2}
        pid = int(started.read_text())
        wait_until("its child is gone", lambda: not runs(pid))


WHOLE = operations.content("v", 1)


class TestRenames:
    @pytest.mark.parametrize(
        ("data", "fault"),
        [
            (None, "missing"),
            *((data, "torn") for data in (b"", WHOLE[:1000], WHOLE[:-6] + b"v 2\nv ")),
        ],
    )
    def test_a_file_that_is_missing_or_not_whole_is_counted(
        self, tmp_path: Path, data: bytes | None, fault: str
    ) -> None:
        if data is not None:
            (tmp_path / "f").write_bytes(data)

        actual = operations.follow(str(tmp_path / "f"), 0.05)

        assert actual[fault] == actual["reads"] > 0


class TestRates:
    @pytest.mark.parametrize("direct", [True, False])
    def test_our_own_loop_measures_writing_and_reading(self, tmp_path: Path, direct: bool) -> None:
        path = str(tmp_path / "f")
        try:
            wrote = operations._own("write", path, 2, 5, direct=direct)
        except OSError:
            pytest.skip("this file system knows no direct transfer")
        read = operations._own("read", path, 2, 5, direct=direct)

        assert wrote["rate"] > 0
        assert read["rate"] > 0
        assert Path(path).stat().st_size == 2 * 1024 * 1024

    @pytest.mark.parametrize(
        ("before", "written", "direct"),
        [("echo 'fio: a note'", 64, True), ('case "$*" in *direct=1*) exit 1;; esac', 1, False)],
        ids=["with direct transfer", "on a file system without"],
    )
    def test_fio_is_preferred_and_its_result_is_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, written: int, direct: bool
    ) -> None:
        result = f'{{"jobs": [{{"job_runtime": 2000, "write": {{"io_bytes": {written << 20}, "runtime": 1000}}}}]}}'
        _fio(tmp_path, f"{before}; echo '{result}'", monkeypatch)

        rate = operations.write_rate(str(tmp_path / "f"), 64, 5)

        assert rate == {"rate": written / 2, "by": "fio", "direct": direct}

    def test_what_fio_says_when_it_fails_is_reported(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        _fio(tmp_path, "echo 'No space left on device' >&2; exit 1", monkeypatch)

        with pytest.raises(OSError, match="fio ended with 1: No space left"):
            operations.write_rate(str(tmp_path / "f"), 64, 5)


def _fio(directory: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write_program(directory / "fio", script)
    monkeypatch.setattr(shutil, "which", lambda name, path="": str(directory / name))


class TestOutliers:
    @pytest.mark.parametrize(
        ("rates", "statuses"),
        [
            ({"a": 900, "b": 1000, "c": 1100}, ["pass", "pass", "pass"]),
            ({"a": 1000, "b": 500, "c": 1000}, ["pass", "warn", "pass"]),
            ({"a": 1000, "b": 100, "c": 1000}, ["pass", "fail", "pass"]),
            # of two the slower is a warning however slow
            ({"a": 1000, "b": 100}, ["pass", "warn"]),
        ],
    )
    def test_one_that_is_slower_than_the_others_is_named(self, rates: dict[str, float], statuses: list[str]) -> None:
        where = context(None, Path("/data"), tuple(rates))
        answers = {node: {"rate": rate, "by": "fio", "direct": True} for node, rate in rates.items()}

        rate_trials._compare(where, rate_trials.WRITING, answers, alone=True)

        assert [check["status"] for check in where.checks] == statuses
        if statuses[1] != "pass":
            share = int(rates["b"] / rates["a"] * 100)
            assert where.checks[1]["message"].startswith(f"b writes at {share}% of what the other")
            assert (where.checks[1]["measured"], where.checks[1]["expected"]) == (str(rates["b"]), "at least 600")

    def test_only_those_well_below_the_others_are_measured_again(self) -> None:
        actual: dict[str, dict[str, Any]]
        actual = {"a": {"rate": 1000}, "b": {"rate": 500}, "c": {"rate": 900}, "d": {"error": "no room"}}

        assert rate_trials._outliers(actual) == ["b"]
        assert rate_trials._outliers({"a": {"rate": 1000}}) == []


class TestLocks:
    @pytest.mark.parametrize(
        ("during", "after", "fstype", "status", "measured"),
        [
            ("held", "free", "nfs", "pass", ""),
            ("free", "free", "nfs", "fail", ""),
            # there the file system's configuration decides
            ("free", "free", "beegfs", "warn", ""),
            ("held", "held", "nfs", "fail", "still held"),
        ],
    )
    def test_a_lock_excludes_others_until_it_is_released(
        self, during: str, after: str, fstype: str, status: str, measured: str
    ) -> None:
        where = context(None, Path("/data"), type=fstype)

        trials._check_lock(where, trials.LOCK, "n2", "n1", {"lock": during}, {"lock": after})

        (check,) = where.checks
        assert check["status"] == status
        assert measured in check["measured"]

    @pytest.mark.parametrize("option", ["nolock", "local_lock=all", "localflock"])
    def test_locks_that_are_local_by_an_option_are_skipped_with_it(self, option: str) -> None:
        where = context(None, Path("/data"), options=(option,))

        trials.locks(where, NODES)

        assert {check["status"] for check in where.checks} == {"skip"}
        assert option in where.checks[0]["message"]
