"""The site's mail server: mails go to it by TLS, to the one that has its name in a certificate of a known authority."""

from __future__ import annotations

import contextlib
import smtplib
import socket
import ssl
import time
from collections.abc import Mapping
from typing import Any

LIMIT_S = 30.0
# a server that can't be reached is left alone for so long
PAUSE_S = 60.0
_PERMANENT = 500
_HINT = "trust its authority by job_mail_relay_ca, or give job_mail_relay the name in its certificate"


class UndeliverableError(Exception):
    """The server refuses this mail for good."""


class Relay:
    """One server: name, port, whether TLS is required, and the file with its authority ('' for the system's)."""

    def __init__(self, settings: Mapping[str, Any], sender: str) -> None:
        self._place = (str(settings["name"]), int(settings["port"]))
        self._tls = (
            ssl.create_default_context(cafile=str(settings.get("ca") or "") or None) if settings["tls"] else None
        )
        if self._tls and not settings.get("verify", True):
            self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE
        self._domain = _domain()
        self._sender = sender or "slurm@" + self._domain
        self._resumes, self._problem = 0.0, ""

    def send(self, address: str, mime: bytes) -> str:
        """Hand a mail over; '' or why it has to wait."""
        if time.monotonic() < self._resumes:
            return self._problem
        try:
            with smtplib.SMTP(*self._place, timeout=LIMIT_S) as server:
                if self._tls:
                    server.starttls(context=self._tls)
                # a name without a domain is of this cluster
                recipient = address if "@" in address else f"{address}@{self._domain}"
                server.sendmail(self._sender, [recipient], mime)
        except smtplib.SMTPRecipientsRefused as error:
            code, text = next(iter(error.recipients.values()))
            if code >= _PERMANENT:
                raise UndeliverableError(_plain(text)) from error
            return _plain(text)
        except ssl.SSLCertVerificationError as error:
            return self._pause(f"{error.verify_message}: {_HINT}")
        except (OSError, smtplib.SMTPException) as error:
            return self._pause(str(error))
        return ""

    def _pause(self, why: str) -> str:
        host, port = self._place
        self._problem = f"{host}:{port}: {why}"
        self._resumes = time.monotonic() + PAUSE_S
        return self._problem


def _plain(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def _domain() -> str:
    with contextlib.suppress(OSError), open("/etc/mailname", encoding="utf-8") as stream:
        return stream.read().strip() or socket.getfqdn()
    return socket.getfqdn()
