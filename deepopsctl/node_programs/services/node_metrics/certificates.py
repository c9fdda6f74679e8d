"""The collector of certificates and of keys that sign packages: until when those on this node are good."""

from __future__ import annotations

import calendar
import glob
import math
import re
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..._shared.prometheus_text import GAUGE
from . import signingkeys
from .samples import Collect, Collector, Metric, Sample

METRICS: Mapping[str, Metric] = {
    "deepops_certificate_expires_seconds": Metric(
        GAUGE, "When a certificate or key ends, unix time; of a file's, the first."
    ),
    "deepops_certificate_readable": Metric(GAUGE, "Whether a watched file holds a certificate or key."),
}
# a pattern may fit a whole bundle of authorities
MOST_FILES = 200
LARGEST = 1 << 20
_PEM = re.compile("-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _VERSION, _UTC_TIME = 0x30, 0xA0, 0x17


def _make(settings: Mapping[str, Any]) -> Collect:
    paths = [str(path) for path in settings["paths"]]
    return lambda: read_expiry(paths)


COLLECTOR = Collector(METRICS, _make)


def read_expiry(paths: Iterable[str]) -> list[Sample]:
    """All that are there; a path that is not a valid pattern and not there can't be read."""
    ends: dict[str, float] = {}
    for path in _expand(paths):
        try:
            ends[path] = min(_ends(path))
        except (OSError, ValueError, IndexError):
            ends[path] = 0.0
    # a key may be for ever
    known = {path: end for path, end in ends.items() if 0 < end < math.inf}
    expires = [Sample("deepops_certificate_expires_seconds", end, {"path": path}) for path, end in known.items()]
    readable = [Sample("deepops_certificate_readable", float(end > 0), {"path": path}) for path, end in ends.items()]
    return expires + readable


def _expand(paths: Iterable[str]) -> list[str]:
    names = [name for path in paths for name in (sorted(glob.glob(path)) if glob.has_magic(path) else [path])]
    return list(dict.fromkeys(names))[:MOST_FILES]


def _ends(path: str) -> Iterator[float]:
    with open(path, "rb") as stream:
        data = stream.read(LARGEST)
    certificates = _PEM.findall(data.decode("ascii", "replace"))
    for pem in certificates:
        yield ends_at(ssl.PEM_cert_to_DER_cert(pem))
    if not certificates:
        yield from signingkeys.ends(data)


def ends_at(der: bytes) -> float:
    """The end of a certificate's validity, unix time. Python shows it of no file but by a private function."""
    _, certificate, _ = _element(der)
    _, signed, _ = _element(certificate)
    tag, _, rest = _element(signed)
    if tag == _VERSION:
        # its number, which the first version has not
        _, _, rest = _element(rest)
    for _ in ("signature algorithm", "issuer"):
        _, _, rest = _element(rest)
    tag, validity, _ = _element(rest)
    if tag != _SEQUENCE:
        raise ValueError("no validity where it has to be")
    _, _, rest = _element(validity)
    tag, when, _ = _element(rest)
    # two digits of a year are of 1950 to 2049 (RFC 5280)
    text = when.decode("ascii")
    century = "" if tag != _UTC_TIME else "19" if text >= "50" else "20"
    return float(calendar.timegm(time.strptime(century + text, "%Y%m%d%H%M%SZ")))


def _element(der: bytes) -> tuple[int, bytes, bytes]:
    """The first element of DER: its tag, its content, and what follows it."""
    length, start = der[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(der[2:start], "big")
    if len(der) < start + length:
        raise ValueError("cut off")
    return der[0], der[start : start + length], der[start + length :]
