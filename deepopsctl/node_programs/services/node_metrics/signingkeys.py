"""Until when an OpenPGP key is good: what apt knows a repository by. RFC 4880, keys of version 4."""

from __future__ import annotations

from collections.abc import Iterator

from ..._shared import openpgp

_SIGNATURE, _SUBKEY = 2, 14
# types of signatures that apply to the whole key: over a name, or over the key alone
_OF_THE_KEY = frozenset((0x10, 0x11, 0x12, 0x13, 0x1F))
_MADE, _KEY_LASTS, _ISSUER = 2, 9, 16
_NEVER = float("inf")


def ends(data: bytes) -> Iterator[float]:
    """The end of each key in a file, unix time; infinite for one without. ValueError where it is not a key."""
    primary: bytes | None = None
    newest: tuple[int, float] = (0, _NEVER)
    of_subkey = False
    for tag, body in openpgp.packets(data):
        if tag in (openpgp.PUBLIC_KEY, _SUBKEY):
            of_subkey = tag == _SUBKEY
        if tag == openpgp.PUBLIC_KEY:
            if primary is not None:
                yield newest[1]
            primary, newest = body, (0, _NEVER)
        elif tag == _SIGNATURE and primary is not None and not of_subkey:
            newest = max(newest, _validity(body, primary) or newest)
    if primary is None:
        raise ValueError("it has no key")
    yield newest[1]


def _validity(signature: bytes, primary: bytes) -> tuple[int, float] | None:
    """Creation time of a key's self-signature, and the end of the key's validity; None for other signatures."""
    if signature[:1] != b"\x04" or signature[1] not in _OF_THE_KEY:
        return None
    hashed = int.from_bytes(signature[4:6], "big")
    rest = signature[6 + hashed :]
    subpackets = _subpackets(signature[6 : 6 + hashed])
    issuer = {**_subpackets(rest[2 : 2 + int.from_bytes(rest[:2], "big")]), **subpackets}.get(_ISSUER)
    if issuer not in (None, bytes.fromhex(openpgp.fingerprint(primary))[-8:]):
        return None
    lasts = int.from_bytes(subpackets.get(_KEY_LASTS, b""), "big")
    end = float(int.from_bytes(primary[1:5], "big") + lasts) if lasts else _NEVER
    return int.from_bytes(subpackets.get(_MADE, b""), "big"), end


def _subpackets(area: bytes) -> dict[int, bytes]:
    subpackets, position = {}, 0
    while position < len(area):
        start, length = _length(area, position)
        subpackets[area[start] & 0x7F] = area[start + 1 : start + length]
        position = start + length
    return subpackets


def _length(raw: bytes, position: int) -> tuple[int, int]:
    """Where the content begins, and how long it is."""
    octet = raw[position]
    if octet < 192:
        return position + 1, octet
    if octet < 255:
        return position + 2, ((octet - 192) << 8) + raw[position + 1] + 192
    return position + 5, int.from_bytes(raw[position + 1 : position + 5], "big")
