"""How Slurm reads the values of slurm.conf: yes and no, numbers, no limit, times. Runs on nodes, too.

Source: s_p_handle_boolean and s_p_handle_uint32 of src/common/parse_config.c and time_str2secs of parse_time.c, the
same in 22.05 to 26.05; each form was given to slurmctld of all three.
"""

from __future__ import annotations

import re

# in any case, as all words here
YES = frozenset({"yes", "up", "true", "1"})
NO = frozenset({"no", "down", "false", "0"})
UNLIMITED = frozenset({"unlimited", "infinite"})
# a time has one more
TIME_UNLIMITED = UNLIMITED | {"-1"}
# decimal, or as in C: 0x10, 010; the only unit is K
_NUMBER = re.compile(r"([+-]?)(0[xX][0-9A-Fa-f]+|[0-9]+)([kK]?)")
_TIME = re.compile(r"(?:([0-9]+)-)?([0-9]+)(?::([0-9]+))?(?::([0-9]+))?")


def is_yes(text: str) -> bool:
    """Whether a key of YES and NO is switched on; what Slurm does not read is no."""
    return text.lower() in YES


def is_no(text: str) -> bool:
    """Whether a key of YES and NO is switched off."""
    return text.lower() in NO


def is_unlimited(text: str) -> bool:
    """Whether a time or a number stands for no limit."""
    return text.lower() in TIME_UNLIMITED


def whole(text: str) -> int | None:
    """A number with its unit, `4K` as 4096; None for no limit and for what Slurm does not read."""
    match = _NUMBER.fullmatch(text)
    if not match or match[1] == "-":
        return None
    digits = match[2]
    octal = len(digits) > 1 and digits[0] == "0" and digits[1] not in "xX"
    try:
        return int(digits, 8 if octal else 0) * (1024 if match[3] else 1)
    except ValueError:
        return None


def seconds(text: str) -> int | None:
    """A time limit (`90` minutes, `12:00:00`, `2-00`) in seconds; None for no limit and for no time."""
    match = _TIME.fullmatch(text)
    if not match:
        return None
    days, first, second, third = (int(part or 0) for part in match.groups())
    if match[1] is None and match[4] is None:
        # minutes[:seconds], not hours
        return first * 60 + second
    return ((days * 24 + first) * 60 + second) * 60 + third
