"""OpenPGP public keys of version 4 (RFC 4880): their packets and fingerprints.

Not by gpg: docs/develop/decisions/standard-library-on-nodes.md.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterator

PUBLIC_KEY = 6
BEGIN, END = "-----BEGIN PGP PUBLIC KEY BLOCK-----", "-----END PGP PUBLIC KEY BLOCK-----"


def dearmored(data: bytes) -> bytes:
    """The bytes inside the armour; binary keys as they are. ValueError where the armour is broken."""
    if not data.lstrip().startswith(BEGIN.encode()):
        return data
    lines = [line.strip() for line in data.decode("ascii", "replace").strip().splitlines()]
    if lines.count(BEGIN) != 1 or lines[-1] != END:
        raise ValueError("it is not one whole key block")
    # headers end with an empty line; the checksum begins with `=`
    body = lines[lines.index("") + 1 : -1] if "" in lines else lines[1:-1]
    text = "".join(line for line in body if not line.startswith("="))
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("its armour is broken") from error


def packets(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(tag, body) of each packet. ValueError where it is not a key."""
    raw, position = dearmored(data), 0
    while position < len(raw):
        try:
            tag, start, length = _header(raw, position)
        except IndexError as error:
            raise ValueError("it is cut off") from error
        position = start + length
        if position > len(raw):
            raise ValueError("it is cut off")
        body = raw[start:position]
        if tag == PUBLIC_KEY and body[:1] != b"\x04":
            raise ValueError("it has a key of another version than 4")
        yield tag, body


def fingerprint(key: bytes) -> str:
    """The fingerprint of a key by the body of its packet, in upper case."""
    # what OpenPGP makes one of version 4 by
    digest = hashlib.sha1(b"\x99" + len(key).to_bytes(2, "big") + key)  # noqa: S324 (it has no other there)
    return digest.hexdigest().upper()


def fingerprints(data: bytes) -> list[str]:
    """Fingerprints of all primary keys. ValueError where it is not a key."""
    return [fingerprint(body) for tag, body in packets(data) if tag == PUBLIC_KEY]


def _header(raw: bytes, position: int) -> tuple[int, int, int]:
    """(tag, start of the body, its length) of the packet there."""
    first = raw[position]
    if not first & 0x80:
        raise ValueError("it is not an OpenPGP key")
    if not first & 0x40:
        size = 1 << (first & 0x03)
        if size == 8:
            raise ValueError("it has a packet without a length")
        start = position + 1 + size
        return (first >> 2) & 0x0F, start, int.from_bytes(raw[position + 1 : start], "big")
    tag, octet = first & 0x3F, raw[position + 1]
    if octet < 192:
        return tag, position + 2, octet
    if octet < 224:
        return tag, position + 3, ((octet - 192) << 8) + raw[position + 2] + 192
    if octet == 255:
        return tag, position + 6, int.from_bytes(raw[position + 2 : position + 6], "big")
    raise ValueError("it has a packet in parts")
