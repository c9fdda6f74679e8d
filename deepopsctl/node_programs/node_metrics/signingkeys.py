"""Until when an OpenPGP key is good: what apt knows a repository by. RFC 4880, keys of version 4."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Dict, Iterator, Optional, Tuple

BEGIN = b"-----BEGIN PGP PUBLIC KEY BLOCK-----"
_SIGNATURE, _KEY, _SUBKEY = 2, 6, 14
# types of signatures that apply to the whole key: over a name, or over the key alone
_OF_THE_KEY = frozenset((0x10, 0x11, 0x12, 0x13, 0x1F))
_MADE, _KEY_LASTS, _ISSUER = 2, 9, 16
_NEVER = float("inf")


def ends(data: bytes) -> Iterator[float]:
    """The end of each key in a file, unix time; infinite for one without. ValueError where it is no key."""
    primary: Optional[bytes] = None
    newest: Tuple[int, float] = (0, _NEVER)
    of_subkey = False
    for tag, body in _packets(_dearmored(data)):
        if tag in (_KEY, _SUBKEY):
            of_subkey = tag == _SUBKEY
        if tag == _KEY:
            if primary is not None:
                yield newest[1]
            if body[:1] != b"\x04":
                raise ValueError("it has a key of another version than 4")
            primary, newest = body, (0, _NEVER)
        elif tag == _SIGNATURE and primary is not None and not of_subkey:
            newest = max(newest, _validity(body, primary) or newest)
    if primary is None:
        raise ValueError("it has no key")
    yield newest[1]


def _validity(signature: bytes, primary: bytes) -> Optional[Tuple[int, float]]:
    """Creation time of a key's self-signature, and the end of the key's validity; None for other signatures."""
    if signature[:1] != b"\x04" or signature[1] not in _OF_THE_KEY:
        return None
    hashed = int.from_bytes(signature[4:6], "big")
    rest = signature[6 + hashed :]
    subpackets = _subpackets(signature[6 : 6 + hashed])
    issuer = {**_subpackets(rest[2 : 2 + int.from_bytes(rest[:2], "big")]), **subpackets}.get(_ISSUER)
    # what a fingerprint of version 4 is made by
    own = hashlib.sha1(b"\x99" + len(primary).to_bytes(2, "big") + primary).digest()[-8:]  # noqa: S324 (OpenPGP's)
    if issuer not in (None, own):
        return None
    lasts = int.from_bytes(subpackets.get(_KEY_LASTS, b""), "big")
    end = float(int.from_bytes(primary[1:5], "big") + lasts) if lasts else _NEVER
    return int.from_bytes(subpackets.get(_MADE, b""), "big"), end


def _dearmored(data: bytes) -> bytes:
    if BEGIN not in data:
        return data
    block = data[data.index(BEGIN) + len(BEGIN) :].partition(b"-----END")[0].replace(b"\r", b"")
    # headers end with an empty line; the checksum begins with `=`
    body = block.partition(b"\n\n")[2]
    return base64.b64decode(re.sub(rb"\n=[^\n]*\n*$", b"", body.rstrip(b"\n") + b"\n"))


def _packets(raw: bytes) -> Iterator[Tuple[int, bytes]]:
    position = 0
    while position < len(raw):
        first = raw[position]
        if not first & 0x80:
            raise ValueError("it is no OpenPGP key")
        if first & 0x40:
            tag, (start, length) = first & 0x3F, _length(raw, position + 1)
        else:
            size = 1 << (first & 0x03)
            if size == 8:
                raise ValueError("it has a packet without a length")
            start = position + 1 + size
            tag, length = (first >> 2) & 0x0F, int.from_bytes(raw[position + 1 : start], "big")
        yield tag, raw[start : start + length]
        position = start + length
    if position > len(raw):
        raise ValueError("it is cut off")


def _subpackets(area: bytes) -> Dict[int, bytes]:
    subpackets, position = {}, 0
    while position < len(area):
        start, length = _length(area, position)
        subpackets[area[start] & 0x7F] = area[start + 1 : start + length]
        position = start + length
    return subpackets


def _length(raw: bytes, position: int) -> Tuple[int, int]:
    """Where the content begins, and how long it is."""
    octet = raw[position]
    if octet < 192:
        return position + 1, octet
    if octet < 255:
        return position + 2, ((octet - 192) << 8) + raw[position + 1] + 192
    return position + 5, int.from_bytes(raw[position + 1 : position + 5], "big")
