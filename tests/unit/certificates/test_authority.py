"""The cluster's own certificate authority, looked at by another library's eyes: Python's TLS."""

from __future__ import annotations

import base64
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


def loaded(identity: Identity) -> x509.Certificate:
    return x509.load_pem_x509_certificate(identity.certificate.encode())


def context(protocol: int, authority: Authority, identity: Identity | None, directory: Path) -> ssl.SSLContext:
    made = ssl.SSLContext(protocol)
    made.check_hostname = protocol == ssl.PROTOCOL_TLS_CLIENT
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_verify_locations(cadata=authority.certificate)
    if identity:
        both = directory / "both.pem"
        both.write_text(identity.key + identity.certificate, encoding="utf-8")
        made.load_cert_chain(both)
    return made


def common_name(stream: ssl.SSLSocket) -> str:
    shown = x509.load_der_x509_certificate(stream.getpeercert(binary_form=True) or b"")
    return shown.subject.rfc4514_string()


def greeted(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> str:
    """What a server that asks for certificates makes of a client: the client's name."""
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
    assert Authority(SECRET).identify("gpu01", ADDRESSES, TODAY) == Authority(SECRET).identify(
        "gpu01", ADDRESSES, TODAY
    )


def test_a_period_makes_one_certificate_and_the_next_period_another_with_another_key() -> None:
    authority = Authority(SECRET)
    first = date.fromordinal(validity.PERIOD_DAYS * validity.period_of(TODAY))
    last, next_one = first + timedelta(validity.PERIOD_DAYS - 1), first + timedelta(validity.PERIOD_DAYS)

    assert authority.identify("gpu01", ADDRESSES, first) == authority.identify("gpu01", ADDRESSES, last)
    renewed = authority.identify("gpu01", ADDRESSES, next_one)
    assert renewed.key != authority.identify("gpu01", ADDRESSES, first).key
    assert loaded(renewed).not_valid_after_utc - loaded(
        authority.identify("gpu01", ADDRESSES, first)
    ).not_valid_after_utc == timedelta(validity.PERIOD_DAYS)


def test_a_certificate_is_renewed_long_before_it_ends_and_good_before_it_is_made() -> None:
    last_day = date.fromordinal(validity.PERIOD_DAYS * (validity.period_of(TODAY) + 1) - 1)
    certificate = loaded(Authority(SECRET).identify("gpu01", [], last_day))

    assert certificate.not_valid_after_utc.date() - last_day > timedelta(270)
    first_day = last_day - timedelta(validity.PERIOD_DAYS - 1)
    assert first_day - certificate.not_valid_before_utc.date() == timedelta(validity.EARLIER_DAYS)


@pytest.mark.parametrize("other", [("gpu02", ADDRESSES), ("gpu01", ADDRESSES[:1])])
def test_other_names_and_addresses_make_another_certificate_of_another_number(other: tuple[str, list[str]]) -> None:
    authority = Authority(SECRET)
    here, there = authority.identify("gpu01", ADDRESSES, TODAY), authority.identify(*other, TODAY)

    assert loaded(here).serial_number != loaded(there).serial_number


def test_a_node_is_named_by_its_name_and_its_addresses_each_once() -> None:
    certificate = loaded(Authority(SECRET).identify("gpu01", [*ADDRESSES, "gpu01"], TODAY))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value

    assert names.get_values_for_type(x509.DNSName) == ["gpu01", "gpu01.example.com"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address(text) for text in ADDRESSES[:2]]


def test_no_node_has_the_key_of_another() -> None:
    authority = Authority(SECRET)
    assert authority.identify("gpu01", [], TODAY).key != authority.identify("gpu02", [], TODAY).key


def test_both_ends_know_each_other_by_the_authority(tmp_path: Path) -> None:
    authority = Authority(SECRET)
    server = context(ssl.PROTOCOL_TLS_SERVER, authority, authority.identify("ctl1", ["192.0.2.1"], TODAY), tmp_path)
    client = context(ssl.PROTOCOL_TLS_CLIENT, authority, authority.identify("gpu01", ADDRESSES, TODAY), tmp_path)

    assert greeted(server, client, "192.0.2.1") == "CN=gpu01"


def test_a_client_without_a_certificate_is_refused(tmp_path: Path) -> None:
    authority = Authority(SECRET)
    server = context(ssl.PROTOCOL_TLS_SERVER, authority, authority.identify("ctl1", ["192.0.2.1"], TODAY), tmp_path)
    client = context(ssl.PROTOCOL_TLS_CLIENT, authority, None, tmp_path)

    assert greeted(server, client, "192.0.2.1").startswith("refused")


def test_a_client_of_another_cluster_is_refused(tmp_path: Path) -> None:
    authority = Authority(SECRET)
    stranger = Authority(new_authority(TODAY)).identify("gpu01", ADDRESSES, TODAY)
    server = context(ssl.PROTOCOL_TLS_SERVER, authority, authority.identify("ctl1", ["192.0.2.1"], TODAY), tmp_path)
    client = context(ssl.PROTOCOL_TLS_CLIENT, authority, stranger, tmp_path)

    assert greeted(server, client, "192.0.2.1").startswith("refused")


def test_a_server_under_another_name_is_refused(tmp_path: Path) -> None:
    authority = Authority(SECRET)
    server = context(ssl.PROTOCOL_TLS_SERVER, authority, authority.identify("ctl1", ["192.0.2.1"], TODAY), tmp_path)
    client = context(ssl.PROTOCOL_TLS_CLIENT, authority, authority.identify("gpu01", ADDRESSES, TODAY), tmp_path)

    assert greeted(server, client, "192.0.2.2").startswith("refused")


def test_a_node_can_sign_for_nobody() -> None:
    certificate = loaded(Authority(SECRET).identify("gpu01", ADDRESSES, TODAY))

    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_the_secret_is_one_line_and_no_key_is_shown_by_accident() -> None:
    assert "\n" not in SECRET
    assert "PRIVATE" not in repr(Authority(SECRET).identify("gpu01", ADDRESSES, TODAY))


@pytest.mark.parametrize("secret", ["", "no base64!", base64.b64encode(b"no key").decode()])
def test_a_damaged_secret_is_refused_with_what_to_do(secret: str) -> None:
    with pytest.raises(ControlMachineError) as caught:
        Authority(secret)

    assert "secrets.yml" in caught.value.message
    assert caught.value.hint
