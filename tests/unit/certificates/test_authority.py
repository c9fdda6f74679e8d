"""The cluster's own certificate authority, looked at by another library's eyes: Python's TLS."""

from __future__ import annotations

import base64
import functools
import ipaddress
import socket
import ssl
import threading
from datetime import date, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from deepopsctl.certificates import validity
from deepopsctl.certificates.authority import Authority, Identity, new_authority
from deepopsctl.errors import ControlMachineError

TODAY = validity.today()
SECRET = new_authority(TODAY)
ADDRESSES = ["192.0.2.11", "2001:db8::11", "gpu01.example.com"]


@functools.cache
def managed() -> Authority:
    return Authority(SECRET)


@functools.cache
def gpu01() -> Identity:
    return managed().identify("gpu01", ADDRESSES, TODAY)


def loaded(identity: Identity) -> x509.Certificate:
    return x509.load_pem_x509_certificate(identity.certificate.encode())


def context(protocol: int, identity: Identity | None, directory: Path) -> ssl.SSLContext:
    made = ssl.SSLContext(protocol)
    made.check_hostname = protocol == ssl.PROTOCOL_TLS_CLIENT
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_verify_locations(cadata=managed().certificate)
    if identity:
        both = directory / "both.pem"
        both.write_text(identity.key + identity.certificate, encoding="utf-8")
        made.load_cert_chain(both)
    return made


def common_name(stream: ssl.SSLSocket) -> str:
    shown = x509.load_der_x509_certificate(stream.getpeercert(binary_form=True) or b"")
    return shown.subject.rfc4514_string()


def greeted(directory: Path, identity: Identity | None, name: str = "192.0.2.1") -> str:
    """What the controller, which asks for certificates, makes of a client that calls it so: the client's name."""
    server = context(ssl.PROTOCOL_TLS_SERVER, managed().identify("ctl1", ["192.0.2.1"], TODAY), directory)
    client = context(ssl.PROTOCOL_TLS_CLIENT, identity, directory)
    received: list[str] = []

    def serve(connection: socket.socket) -> None:
        try:
            with server.wrap_socket(connection, server_side=True) as stream:
                received.append(common_name(stream))
                stream.sendall(b"welcome")
        except ssl.SSLError as error:
            received.append(f"refused: {error.reason}")
            connection.close()

    local_end, theirs = socket.socketpair()
    thread = threading.Thread(target=serve, args=(theirs,))
    thread.start()
    with local_end:
        try:
            with client.wrap_socket(local_end, server_hostname=name) as stream:
                stream.recv(10)
        except OSError:
            pass
    thread.join()
    return received[0]


def test_the_same_day_makes_the_same_certificate_on_any_control_machine() -> None:
    assert Authority(SECRET).identify("gpu01", ADDRESSES, TODAY) == gpu01()


def test_a_period_makes_one_certificate_and_the_next_period_another_with_another_key() -> None:
    period = timedelta(validity.PERIOD_DAYS)
    first = date.fromordinal(validity.PERIOD_DAYS * validity.period_of(TODAY))
    here, last, renewed = (
        managed().identify("gpu01", ADDRESSES, day) for day in (first, first + period - timedelta(1), first + period)
    )

    assert here == last
    assert renewed.key != here.key
    assert loaded(renewed).not_valid_after_utc - loaded(here).not_valid_after_utc == period


def test_a_certificate_is_renewed_long_before_it_ends_and_good_before_it_is_made() -> None:
    last_day = date.fromordinal(validity.PERIOD_DAYS * (validity.period_of(TODAY) + 1) - 1)
    certificate = loaded(managed().identify("gpu01", [], last_day))

    assert certificate.not_valid_after_utc.date() - last_day > timedelta(270)
    first_day = last_day - timedelta(validity.PERIOD_DAYS - 1)
    assert first_day - certificate.not_valid_before_utc.date() == timedelta(validity.EARLIER_DAYS)


@pytest.mark.parametrize("other", [("gpu02", ADDRESSES), ("gpu01", ADDRESSES[:1])])
def test_other_names_and_addresses_make_another_certificate_of_another_number(other: tuple[str, list[str]]) -> None:
    assert loaded(managed().identify(*other, TODAY)).serial_number != loaded(gpu01()).serial_number


def test_a_node_is_named_by_its_name_and_its_addresses_each_once() -> None:
    certificate = loaded(managed().identify("gpu01", [*ADDRESSES, "gpu01"], TODAY))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value

    assert names.get_values_for_type(x509.DNSName) == ["gpu01", "gpu01.example.com"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address(text) for text in ADDRESSES[:2]]


def test_no_node_has_the_key_of_another() -> None:
    assert managed().identify("gpu02", ADDRESSES, TODAY).key != gpu01().key


def test_the_key_of_tokens_is_the_same_on_any_control_machine_and_another_clusters_is_another() -> None:
    key = managed().token_key()
    assert (len(key), Authority(SECRET).token_key()) == (32, key)
    assert Authority(new_authority(TODAY)).token_key() != key


def test_both_ends_know_each_other_by_the_authority(tmp_path: Path) -> None:
    assert greeted(tmp_path, gpu01()) == "CN=gpu01"


def test_a_client_without_a_certificate_or_of_another_cluster_is_refused(tmp_path: Path) -> None:
    stranger = Authority(new_authority(TODAY)).identify("gpu01", ADDRESSES, TODAY)

    assert greeted(tmp_path, None).startswith("refused")
    assert greeted(tmp_path, stranger).startswith("refused")


def test_a_server_under_another_name_is_refused(tmp_path: Path) -> None:
    assert greeted(tmp_path, gpu01(), "192.0.2.2").startswith("refused")


def test_a_node_can_sign_for_nobody() -> None:
    assert not loaded(gpu01()).extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_the_secret_is_one_line_and_no_key_is_shown_by_accident() -> None:
    assert "\n" not in SECRET
    assert "PRIVATE" not in repr(gpu01())


@pytest.mark.parametrize("secret", ["", "no base64!", base64.b64encode(b"no key").decode()])
def test_a_damaged_secret_is_refused_with_what_to_do(secret: str) -> None:
    with pytest.raises(ControlMachineError) as caught:
        Authority(secret)

    assert "secrets.yml" in caught.value.message
    assert caught.value.hint
