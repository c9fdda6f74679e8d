"""The fingerprint of an OpenPGP public key, so that a downloaded key can be told from another."""

from __future__ import annotations

import base64
import binascii
import hashlib

PUBLIC_KEY = 6
BEGIN, END = "-----BEGIN PGP PUBLIC KEY BLOCK-----", "-----END PGP PUBLIC KEY BLOCK-----"


def dearmored(data):
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


def fingerprints(data):
    """Fingerprints of all primary keys in it, in upper case. ValueError where it is no key."""
    raw, prints, position = dearmored(data), [], 0
    while position < len(raw):
        tag, start, length = _packet(raw, position)
        body = raw[start : start + length]
        if len(body) < length:
            raise ValueError("it is cut off")
        if tag == PUBLIC_KEY:
            if body[:1] != b"\x04":
                raise ValueError("it has a key of another version than 4")
            # what a fingerprint of version 4 is made by
            digest = hashlib.sha1(b"\x99" + length.to_bytes(2, "big") + body)  # noqa: S324 (OpenPGP has no other there)
            prints.append(digest.hexdigest().upper())
        position = start + length
    return prints


def _packet(raw, position):
    """(tag, start of the body, its length) of the packet there."""
    first = raw[position]
    if not first & 0x80:
        raise ValueError("it is no OpenPGP key")
    try:
        if first & 0x40:
            return (first & 0x3F,) + _new_length(raw, position + 1)
        size = 1 << (first & 0x03)
        if size == 8:
            raise ValueError("it has a packet without a length")
        start = position + 1 + size
        return (first >> 2) & 0x0F, start, int.from_bytes(raw[position + 1 : start], "big")
    except IndexError as error:
        raise ValueError("it is cut off") from error


def _new_length(raw, position):
    octet = raw[position]
    if octet < 192:
        return position + 1, octet
    if octet < 224:
        return position + 2, ((octet - 192) << 8) + raw[position + 1] + 192
    if octet == 255:
        return position + 5, int.from_bytes(raw[position + 1 : position + 5], "big")
    raise ValueError("it has a packet in parts")
