"""Certificates of notebooks: each for one user, one node, and a server only."""

from __future__ import annotations

import ipaddress
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_EARLIER = timedelta(minutes=10)


def sign(directory: Path, name: str, address: str, lasting: timedelta) -> dict[str, str]:
    """A new key and its certificate: {key, certificate, authority}, PEM. The authority is in the directory."""
    authority = (directory / "notebooks.crt").read_text(encoding="ascii")
    signer = x509.load_pem_x509_certificate(authority.encode())
    signing_key = serialization.load_pem_private_key((directory / "notebooks.key").read_bytes(), None)
    if not isinstance(signing_key, ec.EllipticCurvePrivateKey):
        raise TypeError("notebooks.key is not an EC key")
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(timezone.utc)
    names = [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address(address))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(signer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(min(now + lasting, signer.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        # not for clients: a notebook opens no other one
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False)
        .sign(signing_key, hashes.SHA256())
    )
    form = serialization.PrivateFormat.PKCS8
    text = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    public = certificate.public_bytes(serialization.Encoding.PEM)
    return {"key": text.decode(), "certificate": public.decode(), "authority": authority}
