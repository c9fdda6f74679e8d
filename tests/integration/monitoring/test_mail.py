"""Alerts by mail: a real Alertmanager with our configuration, and a real server of SMTP."""

from __future__ import annotations

from pathlib import Path

from deepopsctl.monitoring.alert_routing import Wanted
from tests.integration.monitoring import mail
from tests.integration.monitoring.alertmanager import SOON, Alertmanager, alertmanager
from tests.support.cluster import wait_until

OPS = {"ops": {"email": ["ops@example.com", "night@example.com"]}}


LOGIN = {"user": mail.USER, "secret": "mail_password"}


def wanted(box: mail.Mailbox, password: str = mail.PASSWORD, **email: object) -> Wanted:
    settings = {"server": box.server, "from": "hpc@example.com", **email}
    return Wanted(receivers=OPS, email=settings, grouping=SOON, secrets={"mail_password": password})


def failures(running: Alertmanager) -> float:
    """Mails that Alertmanager could not deliver, as the alert AlertmanagerNotificationsFailing counts them."""
    lines = running.text("/metrics").splitlines()
    named = [line for line in lines if line.startswith('alertmanager_notifications_failed_total{integration="email"')]
    return sum(float(line.split()[-1]) for line in named)


def test_all_receivers_get_a_mail_with_what_to_do_by_tls_and_with_the_vaults_password(tmp_path: Path) -> None:
    with (
        mail.strict(tmp_path) as box,
        alertmanager(tmp_path, wanted(box, **LOGIN), SSL_CERT_FILE=str(box.authority)) as running,
    ):
        full = {"alertname": "DiskFull"}
        running.fire({**full, "node": "gpu01"}, {**full, "node": "gpu02"}, action="Make room")
        wait_until("both were notified", lambda: len(box.messages) >= 2, details=running.log)

    assert set(box.recipients) == {"ops@example.com", "night@example.com"}
    assert all(box.encrypted)
    assert set(box.logins) == {(mail.USER, mail.PASSWORD)}
    message = box.messages[0]
    assert message["From"] == "hpc@example.com"
    assert message["Subject"] == "[FIRING:2] DiskFull hpc (critical)"
    for text in ("DiskFull!", "gpu01", "gpu02", "Make room"):
        assert text in box.text()


def test_that_an_alert_has_ended_is_a_mail_too(tmp_path: Path) -> None:
    with mail.trusting(tmp_path) as box, alertmanager(tmp_path, wanted(box, tls=False)) as running:
        running.fire({"alertname": "NodeDown", "node": "gpu01"})
        wait_until("it was sent", lambda: len(box.messages) >= 2, details=running.log)
        running.end({"alertname": "NodeDown", "node": "gpu01"})
        wait_until("its end was sent", lambda: len(box.messages) >= 4, details=running.log)

    assert box.messages[-1]["Subject"] == "[RESOLVED] NodeDown hpc (gpu01 critical)"


def test_nothing_is_sent_without_tls_where_it_is_required_and_alertmanager_logs_the_failure(tmp_path: Path) -> None:
    with mail.trusting(tmp_path) as box, alertmanager(tmp_path, wanted(box)) as running:
        running.fire({"alertname": "DiskFull", "node": "gpu01"})
        wait_until("it was tried", lambda: "STARTTLS" in running.log(), details=running.log)

        assert box.messages == []


def test_a_password_that_the_server_refuses_is_counted_as_a_failure(tmp_path: Path) -> None:
    with (
        mail.strict(tmp_path) as box,
        alertmanager(tmp_path, wanted(box, "wrong", **LOGIN), SSL_CERT_FILE=str(box.authority)) as running,
    ):
        running.fire({"alertname": "DiskFull", "node": "gpu01"})
        wait_until("it was refused", lambda: failures(running) > 0, details=running.log)

        assert "wrong" not in running.log()
    assert box.messages == []
    assert ("hpc", "wrong") in box.logins


def test_a_mail_server_with_another_certificate_gets_no_password(tmp_path: Path) -> None:
    with (
        mail.strict(tmp_path) as box,
        # it trusts the system's own authorities, of which this server's is none
        alertmanager(tmp_path, wanted(box, **LOGIN)) as running,
    ):
        running.fire({"alertname": "DiskFull", "node": "gpu01"})
        wait_until("it was tried", lambda: "certificate" in running.log(), details=running.log)

    assert (box.logins, box.messages) == ([], [])
