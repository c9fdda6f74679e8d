"""Whether mails about jobs leave a controller."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from deepopsctl.node_programs.suites.validate_environment import mail


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(mail, "SPOOLS", (str(tmp_path), str(tmp_path / "no dma")))
    monkeypatch.setattr(mail, "SENDMAIL", sys.executable)
    return tmp_path


def statuses() -> list[tuple[str, str]]:
    return [(check["status"], check["message"]) for check in mail.verify_mail("ctl1")]


def test_a_mail_may_wait_for_some_minutes_and_no_longer(spool: Path) -> None:
    waiting = spool / "1.json"
    waiting.touch()
    assert statuses() == [("pass", "")]

    os.utime(waiting, (0, time.time() - 1_800))
    assert statuses() == [("fail", "1 mails wait, the oldest for 30 minutes")]


def test_a_mail_that_dma_has_is_one(spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dma = spool / "dma"
    dma.mkdir()
    monkeypatch.setattr(mail, "SPOOLS", (str(spool), str(dma)))
    for name in ("M12.55d0", "Q12.55d0", "flush"):
        (dma / name).touch()
        os.utime(dma / name, (0, time.time() - 1_800))
    assert statuses() == [("fail", "1 mails wait, the oldest for 30 minutes")]

    (dma / "Q12.55d0").unlink()
    assert statuses() == [("pass", "")]


def test_without_a_mail_server_it_is_skipped_and_other_nodes_have_no_check(
    spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mail, "SENDMAIL", str(spool / "none"))
    assert statuses() == [("skip", "no mail server here: set job_mail_relay")]

    spool.rmdir()
    assert statuses() == []
