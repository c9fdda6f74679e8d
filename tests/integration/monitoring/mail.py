"""A mail server as sites have them: it wants TLS before anything else, then a name and a password."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import default
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from deepopsctl.certificates import validity
from deepopsctl.certificates.authority import Authority, new_authority
from tests.support.ports import free_port

USER, PASSWORD = "hpc", "opensesame"


@dataclass
class Mailbox:
    """What came in, and who tried to get in with which password."""

    server: str
    # of the authority that the server's certificate is from
    authority: Path
    messages: list[EmailMessage] = field(default_factory=list)
    recipients: list[str] = field(default_factory=list)
    logins: list[tuple[str, str]] = field(default_factory=list)
    encrypted: list[bool] = field(default_factory=list)

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802 (aiosmtpd knows it by this name)
        """Takes a message."""
        content = envelope.content
        assert isinstance(content, bytes)
        message = BytesParser(policy=default).parsebytes(content)
        assert isinstance(message, EmailMessage)
        self.messages.append(message)
        self.recipients += envelope.rcpt_tos
        self.encrypted.append(session.ssl is not None)
        return "250 taken"

    def login(self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: object) -> AuthResult:
        assert isinstance(data, LoginPassword)
        credentials = (data.login.decode(), data.password.decode())
        self.logins.append(credentials)
        # not handled: aiosmtpd reports it itself
        return AuthResult(success=credentials == (USER, PASSWORD), handled=False)

    def text(self, number: int = 0) -> str:
        body = self.messages[number].get_body(preferencelist=("html", "plain"))
        assert body is not None
        return str(body.get_content())


@contextmanager
def strict(directory: Path) -> Iterator[Mailbox]:
    """A server that accepts nothing without STARTTLS and a login."""
    authority = Authority(new_authority(validity.today()))
    host = authority.identify("mail.example.com", ["127.0.0.1"], validity.today())
    both, trusted = directory / "mail.pem", directory / "mail-authority.crt"
    both.write_text(host.key + host.certificate, encoding="utf-8")
    trusted.write_text(authority.certificate, encoding="utf-8")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(both)
    box = Mailbox(f"127.0.0.1:{free_port()}", trusted)
    asks: dict[str, Any] = {"require_starttls": True, "auth_required": True, "authenticator": box.login}
    # its LOGIN asks for "User Name" where real servers, and so Alertmanager, use "Username:"
    with _running(box, tls_context=tls, auth_exclude_mechanism=["LOGIN"], **asks):
        yield box


@contextmanager
def trusting(directory: Path) -> Iterator[Mailbox]:
    """A relay of the inner network: no TLS, no login."""
    box = Mailbox(f"127.0.0.1:{free_port()}", directory / "none")
    with _running(box):
        yield box


@contextmanager
def _running(box: Mailbox, **options: Any) -> Iterator[None]:
    port = int(box.server.rpartition(":")[2])
    controller = Controller(box, hostname="127.0.0.1", port=port, **options)
    controller.start()
    try:
        yield
    finally:
        controller.stop()
