"""When the guard ends a slurmctld: on what the heartbeat's file and systemd show it, second by second."""

from __future__ import annotations

from deepopsctl.node_programs.slurm_controllers.guard import Process, Watch
from deepopsctl.node_programs.slurm_controllers.heartbeat import Heartbeat

OURS, OTHERS = 0, 1
RUNNING, AGAIN = Process(100, "5"), Process(101, "9")
LIMIT_S = 21


def in_control() -> Watch:
    """The guard of a controller whose slurmctld has just shown that it is in control, at 10."""
    watch = Watch(OURS, LIMIT_S)
    assert watch.reason_to_end(RUNNING, Heartbeat(1000, OURS), 0) == ""
    assert watch.reason_to_end(RUNNING, Heartbeat(1007, OURS), 10) == ""
    return watch


def test_one_that_shows_life_goes_on() -> None:
    watch = in_control()

    assert watch.reason_to_end(RUNNING, Heartbeat(1014, OURS), 29) == ""
    assert watch.reason_to_end(RUNNING, Heartbeat(1014, OURS), 40) == ""


def test_one_that_hangs_ends_before_the_others_take_over() -> None:
    assert "no sign of life for 22 s" in in_control().reason_to_end(RUNNING, Heartbeat(1007, OURS), 32)


def test_one_whose_storage_is_gone_ends_too() -> None:
    assert "no sign of life" in in_control().reason_to_end(RUNNING, None, 32)


def test_one_that_wakes_up_after_another_has_taken_over_ends_at_once() -> None:
    assert in_control().reason_to_end(RUNNING, Heartbeat(1040, OTHERS), 10.5) == "controller 2 has taken over"


def test_a_standby_is_left_alone() -> None:
    watch = Watch(OTHERS, LIMIT_S)

    for now in range(0, 200, 10):
        assert watch.reason_to_end(RUNNING, Heartbeat(1000, OURS), now) == ""


def test_a_slurmctld_that_takes_its_time_to_start_is_left_alone() -> None:
    watch = in_control()

    # the file still has what its predecessor wrote
    assert watch.reason_to_end(AGAIN, Heartbeat(1007, OURS), 60) == ""
    assert watch.reason_to_end(AGAIN, Heartbeat(1007, OURS), 600) == ""


def test_a_guard_that_starts_late_waits_for_a_sign_of_life_first() -> None:
    watch = Watch(OURS, LIMIT_S)

    assert watch.reason_to_end(RUNNING, Heartbeat(1000, OURS), 0) == ""
    assert watch.reason_to_end(RUNNING, Heartbeat(1000, OURS), 100) == ""


def test_nothing_is_ended_where_nothing_runs() -> None:
    watch = in_control()

    assert watch.reason_to_end(None, Heartbeat(1040, OTHERS), 60) == ""
