"""Mails about jobs to a real mail server with STARTTLS, which has the certificate that it should have, or another."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from deepopsctl.certificates import validity
from deepopsctl.certificates.authority import Authority, new_authority
from deepopsctl.node_programs.services.job_mail.relay import Relay, UndeliverableError
from tests.support.files import write_files
from tests.support.ports import free_port

AUTHORITY = Authority(new_authority(validity.today()))
SENDER, MIME = "slurm@hpc.example.com", b"Subject: Ended\r\n\r\nJob 28\r\n"


@dataclass
class Mailbox:
    """What came in, and whether by TLS."""

    mails: list[tuple[list[str], bool]] = field(default_factory=list)

    async def handle_RCPT(  # noqa: N802 (aiosmtpd knows it by this name)
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        if address.startswith(("gone", "full")):
            return "550 no such user" if address.startswith("gone") else "452 mailbox full"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802 - aiosmtpd's name
        self.mails.append((envelope.rcpt_tos, session.ssl is not None))
        return "250 taken"


@contextmanager
def mail_server(
    directory: Path, name: str = "127.0.0.1", *, tls: bool = True
) -> Iterator[tuple[dict[str, Any], Mailbox]]:
    """One with a certificate for this name; the settings that a node has for it."""
    made = AUTHORITY.identify("smtp", [name], validity.today())
    write_files(directory, {"crt": made.certificate, "key": made.key, "ca": AUTHORITY.certificate})
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "crt", directory / "key")
    mailbox, port = Mailbox(), free_port()
    controller = Controller(mailbox, "127.0.0.1", port, tls_context=context if tls else None)
    controller.start()
    try:
        settings = {"name": "127.0.0.1", "port": port, "tls": True, "verify": True, "ca": str(directory / "ca")}
        yield settings, mailbox
    finally:
        controller.stop()


def test_mail_goes_by_tls_to_the_server_that_the_authority_knows(tmp_path: Path) -> None:
    with mail_server(tmp_path) as (settings, mailbox):
        assert Relay(settings, SENDER).send("alice@example.com", MIME) == ""

    assert mailbox.mails == [(["alice@example.com"], True)]


def test_no_mail_goes_to_a_server_of_an_unknown_authority_or_another_name(tmp_path: Path) -> None:
    with mail_server(tmp_path) as (settings, mailbox):
        assert "job_mail_relay_ca" in Relay({**settings, "ca": ""}, SENDER).send("alice@example.com", MIME)
    (tmp_path / "other").mkdir()
    with mail_server(tmp_path / "other", "192.0.2.1") as (settings, other):
        assert "IP address mismatch" in Relay(settings, SENDER).send("alice@example.com", MIME)
        assert other.mails == []
        # a site that wants it so
        assert Relay({**settings, "verify": False}, SENDER).send("alice@example.com", MIME) == ""

    assert mailbox.mails == []


def test_no_mail_goes_in_clear_to_a_server_that_should_have_tls(tmp_path: Path) -> None:
    with mail_server(tmp_path, tls=False) as (settings, mailbox):
        assert "STARTTLS" in Relay(settings, SENDER).send("alice@example.com", MIME)
        assert mailbox.mails == []
        assert Relay({**settings, "tls": False}, SENDER).send("alice@example.com", MIME) == ""


def test_what_the_server_refuses_for_good_is_dropped_and_the_rest_waits(tmp_path: Path) -> None:
    with mail_server(tmp_path) as (settings, _):
        server = Relay(settings, SENDER)
        with pytest.raises(UndeliverableError, match="no such user"):
            server.send("gone@example.com", MIME)
        assert server.send("full@example.com", MIME) == "mailbox full"
        assert server.send("alice@example.com", MIME) == ""


def test_a_server_that_is_down_is_asked_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"name": "127.0.0.1", "port": free_port(), "tls": True, "ca": ""}
    server = Relay(settings, SENDER)
    problem = server.send("alice@example.com", MIME)
    assert "refused" in problem

    monkeypatch.setattr("smtplib.SMTP", pytest.fail)

    assert server.send("bob@example.com", MIME) == problem
