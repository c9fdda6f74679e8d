"""Mail about jobs: what slurmctld hands over, hostile names and addresses, waiting for the accounting, limits."""

from __future__ import annotations

import email
import json
import os
import time
from collections.abc import Sequence
from email import policy
from email.message import EmailMessage
from pathlib import Path

import pytest

from deepopsctl.node_programs.commands.job_report import asking, records
from deepopsctl.node_programs.services.job_mail import cli, delivery, spool
from deepopsctl.node_programs.services.job_mail.delivery import Delivery
from deepopsctl.node_programs.services.job_mail.spool import Mail, RefusedError
from tests.data.slurm_samples import JOB

# slurmctld of 24.11
ENDED = "Slurm Job_id=28 Name=train Ended, Run time 00:00:20, COMPLETED, ExitCode 0"
CONFIG = {"cluster": "hpc", "sender": "slurm@hpc.example.com", "hourly": 3, "domains": []}


def sacct(state: str) -> list[str]:
    row = ["28", "28", *JOB[2:5], state, *JOB[6:]]
    # killed in its first second
    return [*row[:9], "0", *row[10:]] if state == "OUT_OF_MEMORY" else row


class Accounting:
    """sacct, which knows job 28 in this state, or does not answer."""

    def __init__(self, state: str = "COMPLETED", *, answers: bool = True) -> None:
        self.state, self.answers = state, answers
        self.asked: list[Sequence[str]] = []

    def __call__(self, argv: Sequence[str]) -> str:
        self.asked.append(argv)
        if not self.answers:
            raise asking.UnansweredError("sacct: no answer within 60 s")
        known = argv[-1] == "--format=" + ",".join(records.FIELDS)
        return records.DELIMITER.join(sacct(self.state)) if known else ""


class Server:
    """A mail server that keeps what it gets, or refuses it."""

    def __init__(self, problem: str = "") -> None:
        self.problem = problem
        self.mails: list[EmailMessage] = []

    def __call__(self, address: str, mime: bytes) -> str:
        self.mails.append(email.message_from_bytes(mime, _class=EmailMessage, policy=policy.default))
        return self.problem


def mail(since: float = 0.0, event: str = "END", subject: str = ENDED) -> Mail:
    return Mail("alice@example.com", subject, "28", event, since)


def deliverer(directory: Path, run: asking.Run, server: Server) -> Delivery:
    return Delivery(str(directory), CONFIG, run, server, f"{directory}.sent")


def text(message: EmailMessage) -> str:
    return str(message.get_content())


def test_a_mail_at_the_end_has_the_jobs_report(tmp_path: Path) -> None:
    spool.put(str(tmp_path), mail())
    server = Server()

    assert deliverer(tmp_path, Accounting(), server).round(now=1) == 0

    (sent,) = server.mails
    assert (sent["To"], sent["Subject"]) == ("alice@example.com", ENDED)
    assert sent["From"] == "Slurm on hpc <slurm@hpc.example.com>"
    assert "CPUs" in text(sent)
    assert not list(tmp_path.iterdir())


def test_a_job_killed_for_memory_in_its_first_second_hears_it(tmp_path: Path) -> None:
    spool.put(str(tmp_path), mail())
    server = Server()

    assert deliverer(tmp_path, Accounting("OUT_OF_MEMORY"), server).round(now=1) == 0

    assert "it was killed because it needed more memory than 128 GiB" in text(server.mails[0])


def test_it_waits_for_the_accounting_and_is_sent_without_a_report_in_the_end(tmp_path: Path) -> None:
    spool.put(str(tmp_path), mail())
    server = Server()
    running = deliverer(tmp_path, Accounting("RUNNING"), server)

    assert running.round(now=10) == 1
    assert not server.mails
    # one at the start is sent at once
    spool.put(str(tmp_path), mail(1.0, "BEGIN", "Slurm Job_id=28 Name=train Began, Queued time 00:00:01"))
    assert running.round(now=10) == 1
    assert server.mails.pop()["Subject"].endswith("Queued time 00:00:01")
    assert running.round(now=delivery.REPORT_WAIT_S) == 0
    assert text(server.mails[0]).strip() == ENDED


def test_a_server_that_is_down_is_tried_for_a_day(tmp_path: Path) -> None:
    spool.put(str(tmp_path), mail())
    down = deliverer(tmp_path, Accounting(), Server("no connection"))

    assert down.round(now=delivery.KEPT_S - 1) == 1
    assert down.round(now=delivery.KEPT_S) == 0


def test_a_damaged_file_goes(tmp_path: Path) -> None:
    (tmp_path / "0.json").write_text("{", encoding="utf-8")

    assert deliverer(tmp_path, Accounting(), Server()).round(now=1) == 0
    assert not list(tmp_path.iterdir())


def test_what_a_call_has_left_that_was_cut_off_goes(tmp_path: Path) -> None:
    """systemd starts the delivery as long as anything is in the directory."""
    left, young = tmp_path / ".deepopsctl-abc", tmp_path / ".deepopsctl-xyz"
    left.touch()
    young.touch()
    os.utime(left, (0, time.time() - 2 * spool.UNFINISHED_S))

    assert deliverer(tmp_path, Accounting(), Server()).round(now=1) == 1
    assert list(tmp_path.iterdir()) == [young]


def test_an_accounting_that_does_not_answer_delays_no_other_mail(tmp_path: Path) -> None:
    for number in range(9):
        spool.put(str(tmp_path), mail(since=number))
    spool.put(str(tmp_path), mail(9.0, "BEGIN", "Slurm Job_id=28 Name=train Began, Queued time 00:00:01"))
    server, accounting = Server(), Accounting(answers=False)

    assert deliverer(tmp_path, accounting, server).round(now=10) == 9
    assert (len(accounting.asked), len(server.mails)) == (3, 1)


def test_the_limit_holds_across_runs_and_ends_with_the_hour(tmp_path: Path) -> None:
    server = Server()

    def run(now: float) -> int:
        spool.put(str(tmp_path), mail(since=now))
        deliverer(tmp_path, Accounting(), server).round(now=now)
        return len(server.mails)

    assert [run(now) for now in (10, 20, 30, 40)] == [1, 2, 3, 3]
    assert run(11 + delivery.HOUR_S) == 4


def test_mails_above_the_limit_of_an_address_go_and_cost_no_question_to_the_accounting(tmp_path: Path) -> None:
    for number in range(5):
        spool.put(str(tmp_path), mail(since=number)._replace(address=f"{'aA'[number % 2]}lice@example.com"))
    server, accounting = Server(), Accounting()

    deliverer(tmp_path, accounting, server).round(now=100)

    assert len(server.mails) == CONFIG["hourly"]
    assert not list(tmp_path.iterdir())
    # the job and its name
    assert len(accounting.asked) == 2 * len(server.mails)


def test_nobody_causes_more_mails_than_the_limit_whatever_the_addresses(tmp_path: Path) -> None:
    for number in range(5):
        spool.put(str(tmp_path), mail(since=number)._replace(address=f"user{number}@example.com"), "60010")
        spool.put(str(tmp_path), mail(since=number)._replace(address=f"other{number}@example.com"), f"6002{number}")
    server = Server()

    deliverer(tmp_path, Accounting(), server).round(now=100)

    sent = [str(message["To"]) for message in server.mails]
    assert sum(address.startswith("user") for address in sent) == CONFIG["hourly"]
    assert sum(address.startswith("other") for address in sent) == 5


@pytest.mark.parametrize(
    "address",
    [
        "-oQ/tmp/x",
        "",
        "alice@example.com,bob@example.com",
        "alice@example.com\nBcc: all@example.com",
        "a b@c",
        "|id",
        "a@b/c",
    ],
)
def test_refuses_what_is_no_single_address(address: str) -> None:
    with pytest.raises(RefusedError, match="not an address"):
        spool.parse(["-s", ENDED, address], {}, [])


def test_mail_goes_only_to_the_domains_that_are_allowed() -> None:
    def accepted(address: str) -> bool:
        try:
            spool.parse(["-s", ENDED, address], {}, ["example.com"])
        except RefusedError:
            return False
        return True

    addresses = ("a@example.com", "a@lab.EXAMPLE.com", "alice", "a@example.org", "a@badexample.com")
    assert [accepted(address) for address in addresses] == [True, True, True, False, False]


def test_a_jobs_name_breaks_no_header_and_chooses_no_job(tmp_path: Path) -> None:
    name = "x\nBcc: all@example.com\n\nJob_id=1"
    subject = f"Slurm Job_id=28 Name={name} Ended, Run time 00:00:20, COMPLETED, ExitCode 0"
    parsed = spool.parse(["-s", subject, "alice@example.com"], {}, [])
    spool.put(str(tmp_path), parsed)
    server = Server()

    deliverer(tmp_path, Accounting(), server).round(now=parsed.since)

    assert (parsed.job, parsed.event) == ("28", "Ended")
    assert server.mails[0]["Bcc"] is None
    assert "\n" not in server.mails[0]["Subject"]


def test_no_more_wait_than_there_is_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "MOST", 1)
    spool.put(str(tmp_path), mail())

    with pytest.raises(RefusedError, match="is the mail server up"):
        spool.put(str(tmp_path), mail())


def test_mails_of_one_user_leave_room_for_those_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "MOST_OF_ONE", 2)
    for number in range(2):
        spool.put(str(tmp_path), mail(since=number), "1001")

    with pytest.raises(RefusedError, match="of this user wait"):
        spool.put(str(tmp_path), mail(since=3), "1001")
    spool.put(str(tmp_path), mail(since=4), "1002")
    assert len(spool.waiting(str(tmp_path))) == 3


def test_slurmctld_hands_a_mail_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_UID", "1001")
    config = tmp_path / "job-mail.json"
    config.write_text(json.dumps(CONFIG), encoding="utf-8")
    directory = tmp_path / "spool"
    directory.mkdir()

    assert cli.main(["-s", ENDED, "alice@example.com"], str(config), str(directory)) == 0
    (waiting,) = spool.waiting(str(directory))
    assert waiting.endswith("-1001.json")
    assert cli.main(["-s", ENDED, "-x"], str(config), str(directory)) == 1
    assert "not an address: -x" in capsys.readouterr().err
