"""Numbers as people read them."""

from __future__ import annotations

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def format_size(value: float) -> str:
    """`512 B`, `3.1 GiB`, `128 GiB`."""
    unit = 0
    while value >= 1023.5 and unit < len(_BINARY) - 1:
        value, unit = value / 1024, unit + 1
    return f"{short(value)} {_BINARY[unit]}"


def format_count(value: float) -> str:
    """`0.03`, `2.1`, `32`."""
    return f"{value:.2f}" if 0 < value < 0.1 else short(value)


def short(value: float) -> str:
    """`2.5`, `12`, `512`."""
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


def format_time(value: float) -> str:
    """`45s`, `12m 03s`, `2h 05m`, `3d 04h`."""
    rest = int(value)
    if rest < 60:
        return f"{rest}s"
    if rest < 3600:
        return f"{rest // 60}m {rest % 60:02}s"
    if rest < 86400:
        return f"{rest // 3600}h {rest % 3600 // 60:02}m"
    return f"{rest // 86400}d {rest % 86400 // 3600:02}h"


def format_share(used: float, asked: float) -> str:
    """`7 %`; a small share is `<1 %`, not 0 %."""
    share = 100 * used / asked
    return "<1 %" if 0 < share < 0.5 else f"{share:.0f} %"
