"""The cluster's own certificate authority.

Its key and certificate are one secret in the vault; what nodes get is a function of it, their name and addresses, and
the day's period (validity.py). Why: docs/develop/decisions/derived-certificates.md.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from deepopsctl.certificates import validity
from deepopsctl.errors import ControlMachineError

_CURVE = ec.SECP256R1()
_USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate and its private key, both PEM."""

    certificate: str
    key: str = field(repr=False)


class Authority:
    """The certificate authority of one cluster."""

    def __init__(self, secret: str) -> None:
        """Load the value that `new_authority` returned; raises ControlMachineError for anything else."""
        try:
            text = base64.b64decode(secret, validate=True)
            key = serialization.load_pem_private_key(text, password=None)
            self._certificate = x509.load_pem_x509_certificate(text)
        except ValueError as error:
            raise ControlMachineError(
                "the cluster's certificate authority in secrets.yml can't be read",
                "take cluster_authority out of it with `ansible-vault edit`; the next deploy makes a new one",
            ) from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ControlMachineError("cluster_authority in secrets.yml is not an EC key", "take it out of secrets.yml")
        self._key = key

    @property
    def certificate(self) -> str:
        """The authority's own certificate, PEM."""
        return _pem(self._certificate)

    @property
    def key(self) -> str:
        """Its key, PEM: for a node that signs for one purpose itself."""
        return _key_text(self._key)

    def identify(self, name: str, addresses: Sequence[str], day: date) -> Identity:
        """The certificate of a node: server certificate for its name and addresses, client certificate for its name."""
        period = validity.period_of(day)
        key = self._derived_key(f"{name}\n{period}")
        builder = (
            _started(name, validity.of_period(period))
            .issuer_name(self._certificate.subject)
            .public_key(key.public_key())
            .serial_number(_serial(self._certificate, name, *addresses, str(period)))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage("digital_signature"), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(x509.SubjectAlternativeName(_alternatives(name, addresses)), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        return Identity(_pem(_signed(builder, self._key)), _key_text(key))

    def token_key(self) -> bytes:
        """The 32 bytes that users' tokens for Slurm are signed with (HS256): they follow from this one, too."""
        return self._expanded(32, "deepopsctl token key")

    def derived(self, purpose: str) -> Authority:
        """Another authority, of a single purpose: it follows from this one, so it is not another secret."""
        key, own = self._derived_key(f"authority\n{purpose}"), self._certificate
        lasting = validity.Validity(own.not_valid_before_utc, own.not_valid_after_utc)
        return Authority(_self_signed("derived", key, lasting, _serial(own, purpose)))

    def _derived_key(self, what: str) -> ec.EllipticCurvePrivateKey:
        # 128 bits more than the curve needs: what is left of the remainder's bias can't be seen
        expanded = self._expanded(48, f"deepopsctl node key\n{what}")
        return ec.derive_private_key(int.from_bytes(expanded, "big") % (_CURVE.group_order - 1) + 1, _CURVE)

    def _expanded(self, length: int, info: str) -> bytes:
        secret = self._key.private_numbers().private_value.to_bytes(32, "big")
        return HKDF(hashes.SHA256(), length, salt=None, info=info.encode()).derive(secret)


def new_authority(day: date) -> str:
    """A new authority for the vault; one line, because Ansible's no_log does not hide values of several lines."""
    key = ec.generate_private_key(_CURVE)
    return _self_signed("cluster", key, validity.of_authority(day), x509.random_serial_number())


def _self_signed(what: str, key: ec.EllipticCurvePrivateKey, lasting: validity.Validity, serial: int) -> str:
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    name = f"deepopsctl {what} authority {identifier.digest.hex()[:8]}"
    builder = (
        _started(name, lasting)
        .issuer_name(_name(name))
        .public_key(key.public_key())
        .serial_number(serial)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage("key_cert_sign", "crl_sign"), critical=True)
        .add_extension(identifier, critical=False)
    )
    return base64.b64encode((_key_text(key) + _pem(_signed(builder, key))).encode()).decode()


def _started(name: str, lasting: validity.Validity) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(_name(name))
    return builder.not_valid_before(lasting.start).not_valid_after(lasting.end)


def _signed(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    try:
        return builder.sign(key, hashes.SHA256(), ecdsa_deterministic=True)
    except UnsupportedAlgorithm as error:
        raise ControlMachineError(
            "this Python's cryptography can't sign deterministically: its OpenSSL is older than 3.2",
            "install cryptography from PyPI: `pip install --upgrade cryptography`",
        ) from error


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*wanted: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{usage: usage in wanted for usage in _USAGES})


def _alternatives(name: str, addresses: Sequence[str]) -> list[x509.GeneralName]:
    """Names and addresses of a server, each once."""
    return [_alternative(text) for text in dict.fromkeys([name, *addresses])]


def _alternative(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _serial(issuer: x509.Certificate, *parts: str) -> int:
    digest = hashlib.sha256(issuer.fingerprint(hashes.SHA256()) + "\n".join(parts).encode()).digest()
    # positive, and at most 20 bytes (RFC 5280)
    return int.from_bytes(digest[:20], "big") >> 1 or 1


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_text(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
