"""When the guard ends a slurmctld: on what the heartbeat's file and systemd show it, second by second."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from deepopsctl.node_programs.services.slurm_controllers.guard import Process, Watch
from deepopsctl.node_programs.services.slurm_controllers.heartbeat import Heartbeat, timeout_s

OURS, OTHERS = 0, 1
RUNNING, AGAIN = Process(100, "5"), Process(101, "9")
TIMEOUT_S = 30


def in_control() -> Watch:
    """The guard of a controller whose slurmctld has just shown that it is in control, at 10."""
    watch = Watch(OURS)
    assert watch.reason_to_end(RUNNING, Heartbeat(1000, OURS), TIMEOUT_S, 0) == ""
    assert watch.reason_to_end(RUNNING, Heartbeat(1007, OURS), TIMEOUT_S, 10) == ""
    return watch


@pytest.mark.parametrize(
    ("guard", "process", "queries"),
    [
        pytest.param(in_control, RUNNING, [(1014, 29), (1014, 40)], id="shows life"),
        pytest.param(
            lambda: Watch(OTHERS), RUNNING, [(1000 + now, now) for now in range(0, 200, 10)], id="is a standby"
        ),
        # the file still has what its predecessor wrote
        pytest.param(in_control, AGAIN, [(1007, 60), (1007, 600)], id="takes its time to start"),
        pytest.param(lambda: Watch(OURS), RUNNING, [(1000, 0), (1000, 100)], id="a late guard saw no sign of"),
    ],
)
def test_one_goes_on_that(guard: Callable[[], Watch], process: Process, queries: list[tuple[int, float]]) -> None:
    watch = guard()

    for beat, now in queries:
        assert watch.reason_to_end(process, Heartbeat(beat, OURS), TIMEOUT_S, now) == ""


@pytest.mark.parametrize(
    ("process", "beat", "now", "reason"),
    [
        # before the others take over, after 30 s
        pytest.param(RUNNING, Heartbeat(1007, OURS), 32, "no sign of life for 22 s", id="hangs"),
        pytest.param(RUNNING, None, 32, "no sign of life for 22 s", id="has no storage any more"),
        pytest.param(RUNNING, Heartbeat(1040, OTHERS), 10.5, "controller 2 has taken over", id="wakes up too late"),
        pytest.param(None, Heartbeat(1040, OTHERS), 60, "", id="does not run"),
    ],
)
def test_one_that_was_in_control_ends_where_it(
    process: Process | None, beat: Heartbeat | None, now: float, reason: str
) -> None:
    result = in_control().reason_to_end(process, beat, TIMEOUT_S, now)

    assert (bool(result), result.endswith(reason)) == (bool(reason), True)


def test_a_longer_timeout_counts_at_once_and_a_shorter_one_only_for_a_new_process() -> None:
    watch = in_control()

    # an upgrade raises it, and its end lowers it again, before slurmctld has read that
    assert watch.reason_to_end(RUNNING, Heartbeat(1007, OURS), 600, 11) == ""
    assert watch.reason_to_end(RUNNING, Heartbeat(1007, OURS), TIMEOUT_S, 60) == ""
    assert "no sign of life" in watch.reason_to_end(RUNNING, Heartbeat(1007, OURS), TIMEOUT_S, 500)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("slurmctldtimeout = 45\n", 45),
        ("#SlurmctldTimeout=9\nX=1\n", 120),
        ("SlurmctldTimeout=9\nSlurmctldTimeout=600", 600),
    ],
)
def test_the_timeout_is_that_of_slurm_conf(tmp_path: Path, text: str, expected: int) -> None:
    (tmp_path / "slurm.conf").write_text(text)

    assert timeout_s(str(tmp_path / "slurm.conf")) == expected
