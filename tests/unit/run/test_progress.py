from __future__ import annotations

from dataclasses import replace

from deepopsctl.run.events import (
    Difference,
    Event,
    HostResult,
    HostStarted,
    PlayStarted,
    Recap,
    RunStarted,
    Status,
    TaskStarted,
)
from deepopsctl.run.progress import Progress, title


def ended(host: str, status: Status, message: str = "", task: str = "Install") -> HostResult:
    return HostResult(host, "slurm", "Nodes", task, status, 1.0, message=message)


def lines(*events: Event, task: str = "Install") -> list[str]:
    progress = Progress()
    stream = [PlayStarted("slurm", "Nodes"), TaskStarted("slurm", "Nodes", task, 0.0), *events, Recap()]
    return [line for event in stream for line in progress.add(event)]


def test_a_task_gets_one_line_when_it_has_ended() -> None:
    result = lines(ended("a", Status.OK), ended("b", Status.CHANGED), ended("c", Status.SKIPPED))
    assert result == ["slurm: Install: 2 nodes ok, 1 changed, 1 skipped"]


def test_a_task_that_was_skipped_everywhere_gets_none() -> None:
    assert lines(ended("a", Status.SKIPPED)) == []


def test_ansibles_check_of_arguments_gets_none_while_it_is_content() -> None:
    task = "slurm_conf : Validating arguments against arg spec 'main' - Write slurm.conf"
    fine, skipped = ended("a", Status.OK, task=task), ended("b", Status.SKIPPED, task=task)
    assert lines(fine, task=task) == []
    assert lines(fine, skipped, task=task) == []
    assert len(lines(ended("a", Status.FAILED, task=task), task=task)) == 2


def test_a_failure_is_said_at_once_by_its_first_line() -> None:
    result = lines(ended("a", Status.FAILED, "no disk\nmore"), ended("b", Status.UNREACHABLE, "gone"))
    assert result == [
        "slurm: Install: a failed: no disk",
        "slurm: Install: b unreachable: gone",
        "slurm: Install: 1 node failed, 1 unreachable",
    ]


def test_the_same_difference_on_many_nodes_is_shown_once() -> None:
    changes = [Difference(f"gpu0{number}", "slurm", "Install", "+new") for number in (1, 2)]
    assert lines(*changes, ended("gpu01", Status.CHANGED))[-1] == "gpu[01-02]:\n+new"


def test_it_knows_who_has_begun_and_not_ended() -> None:
    progress = Progress()
    for event in (
        TaskStarted("slurm", "Nodes", "role : Install", 0.0),
        HostStarted("a", "Install"),
        HostStarted("b", "Install"),
    ):
        progress.add(event)
    progress.add(ended("a", Status.OK))
    assert progress.started - progress.done.keys() == {"b"}
    assert progress.title == "slurm: Install"


def test_a_title_leaves_out_what_is_empty() -> None:
    assert title("slurm", "munge : Write the key") == "slurm: Write the key"
    assert title("", "Task") == "Task"
    assert title("slurm", "") == "slurm"


def test_a_routine_task_is_known_by_the_play_that_it_is_in() -> None:
    progress = Progress()
    progress.add(TaskStarted("slurm", "Prepare the nodes", "role : Validating arguments against arg spec 'main'", 0.0))
    assert progress.doing == "Prepare the nodes"
    progress.add(TaskStarted("slurm", "Prepare the nodes", "role : Install", 0.0))
    assert progress.doing == "Install"


def test_a_node_that_gave_no_answer_is_not_reported_as_failed() -> None:
    progress = Progress()
    for event in (ended("a", Status.FAILED), ended("b", Status.UNREACHABLE), ended("c", Status.OK)):
        progress.add(event)
    assert (progress.lost(Status.FAILED), progress.lost(Status.UNREACHABLE)) == (("a",), ("b",))


def test_a_check_speaks_of_what_would_change_and_not_of_doing() -> None:
    progress = Progress(check=True)
    progress.add(TaskStarted("slurm", "Nodes", "slurmd : Install packages", 0.0))

    assert progress.doing == "check: Install packages"
    for host in ("a", "b"):
        progress.add(ended(host, Status.CHANGED, task="Install packages"))
    assert progress.add(Recap()) == ["slurm: check: Install packages: 2 nodes ok, 2 would change"]


def test_the_share_of_a_run_grows_with_its_plays_and_their_roles() -> None:
    progress = Progress()
    shares: list[float | None] = []
    progress.add(TaskStarted("slurm", "Compare", "Ask the node", 0.0))
    assert progress.share is None
    for event in (
        RunStarted((1, 0, 3)), PlayStarted("slurm", "A"), TaskStarted("slurm", "A", "a : One", 0.0),
        PlayStarted("slurm", "B"), PlayStarted("slurm", "C"), TaskStarted("slurm", "C", "b : One", 0.0),
        TaskStarted("slurm", "C", "b : Two", 0.0), TaskStarted("slurm", "C", "c : One", 0.0), PlayStarted("slurm", "D"),
    ):  # fmt: skip
        progress.add(event)
        shares.append(progress.share)

    assert shares == [0, 0, 0, 0.25, 0.25, 0.25, 0.25, 0.5, 1.0]


def test_the_last_nodes_of_a_task_are_those_that_are_waited_for() -> None:
    progress = Progress()
    progress.add(TaskStarted("slurm", "Nodes", "Install", 0.0))
    for host in "abcd":
        progress.add(HostStarted(host, "Install"))
    progress.add(ended("a", Status.OK))
    assert not progress.waiting
    progress.add(ended("b", Status.OK))
    progress.add(ended("d", Status.OK))
    assert progress.waiting == ("c",)


def test_where_no_node_waits_for_another_each_task_has_its_own_line() -> None:
    progress = Progress()
    stream: list[Event] = [PlayStarted("slurm", "Nodes")]
    for host, task in (("a", "Install"), ("b", "Install"), ("ctl", "Install")):
        stream += [TaskStarted("slurm", "Nodes", task, 0.0), HostStarted(host, task)]
    stream += [
        ended("ctl", Status.SKIPPED),
        TaskStarted("slurm", "Nodes", "Accounts", 0.0),
        HostStarted("ctl", "Accounts"),
        ended("ctl", Status.CHANGED, task="Accounts"),
        TaskStarted("slurm", "Nodes", "Verify", 0.0),
        HostStarted("ctl", "Verify"),
        ended("a", Status.CHANGED),
    ]

    before = [line for event in stream for line in progress.add(event)]

    assert before == ["slurm: Accounts: 1 node ok, 1 changed"]
    assert progress.unfinished == ("b", "ctl")
    assert progress.task == "Verify"
    after: list[Event] = [ended("ctl", Status.OK, task="Verify"), ended("b", Status.OK), Recap()]
    assert [line for event in after for line in progress.add(event)] == [
        "slurm: Install: 2 nodes ok, 1 changed, 1 skipped",
        "slurm: Verify: 1 node ok",
    ]


def test_what_blocks_a_plan_is_reported_at_once_and_once() -> None:
    progress = Progress(check=True)
    refused = replace(ended("a", Status.OK), data=({"blocked": [{"message": "would end jobs\nmore"}]},))

    assert progress.add(refused) == ["blocked: a: would end jobs"]
    assert progress.add(refused) == []
