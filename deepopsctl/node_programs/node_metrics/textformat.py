"""Prometheus' text format, a line at a time. alertdrain and slurmmetrics link here: a program on nodes stands alone."""

from __future__ import annotations

import math
from typing import Mapping, Tuple

_IN_HELP = str.maketrans({"\\": "\\\\", "\n": "\\n"})
_IN_LABELS = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def head(name: str, metric_type: str, text: str) -> Tuple[str, str]:
    """What stands once before the samples of a metric: a sentence about it, and its type."""
    return "# HELP {} {}".format(name, text.translate(_IN_HELP)), "# TYPE {} {}".format(name, metric_type)


def line(name: str, labels: Mapping[str, str], value: float) -> str:
    """One sample."""
    inside = ",".join('{}="{}"'.format(key, _label(text)) for key, text in labels.items())
    return "{}{} {}".format(name, "{" + inside + "}" if inside else "", number(value))


def number(value: float) -> str:
    """A value as text. Whole ones in full: bytes and seconds since 1970 would lose digits."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e17 else repr(float(value))


def _label(text: str) -> str:
    # node exporter drops a whole file for one byte that is no UTF-8, and a terminal obeys control characters
    clean = text.encode("utf-8", "replace").decode("utf-8")
    return "".join(letter if letter.isprintable() else "?" for letter in clean).translate(_IN_LABELS)
