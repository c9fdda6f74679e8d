"""The load of one CPU core: work whose answer is known beforehand. A core that answers otherwise must not run jobs."""

from __future__ import annotations

import hashlib
import time
import zlib
from typing import Any, Callable, NamedTuple

_HASH_ROUNDS = 20_000
_HASH = (
    "41c30bf0114db15068ee0d42becbc3fba6bc01b95b7c3a27c989026c4814bde9"
    "c3c6b2071a1ca38e9fd6e1fb1770f97d1b60044869d4ef41d472c85168bd7464"
)
# a prime: by Fermat's little theorem every base to the power of it less one leaves 1
_PRIME = 2**2203 - 1
_FLOAT_STEPS = 200_000
_FLOAT = "0x1.e71bf4c753437p-1"
_TEXT = b"".join((number * number & 0xFFFF).to_bytes(4, "little") for number in range(65_536))
_TEXT_SUM = 3017122062


class Work(NamedTuple):
    """One type of work. `run` gets the number of the round, `answer` is the expected result."""

    name: str
    run: Callable[[int], Any]
    answer: Any


def hashing(_round: int) -> str:
    """SHA-512 over itself: whole numbers, no memory."""
    return hashlib.pbkdf2_hmac("sha512", b"deepopsctl", b"burn-in", _HASH_ROUNDS).hex()


def multiplying(round_: int) -> int:
    """A power of a number of 2203 bits: multipliers, other numbers every round."""
    return pow(round_ + 2, _PRIME - 1, _PRIME)


def floating(_round: int) -> str:
    """A chaotic series: one wrong bit in any of its steps changes every digit of the last one."""
    value = 0.5123
    for _ in range(_FLOAT_STEPS):
        value = 3.9 * value * (1.0 - value)
    return value.hex()


def packing(_round: int) -> int:
    """Compress and unpack: branches, caches."""
    return zlib.crc32(zlib.decompress(zlib.compress(_TEXT, 6)))


WORKS = (
    Work("hashing", hashing, _HASH),
    Work("multiplying", multiplying, 1),
    Work("floating point", floating, _FLOAT),
    Work("packing", packing, _TEXT_SUM),
)


def one_round(number: int, works: tuple[Work, ...] = WORKS) -> tuple[float, str]:
    """CPU seconds of one round of all works, and what came out wrong; '' where nothing did."""
    started = time.process_time()
    for work in works:
        result = work.run(number)
        if result != work.answer:
            text = f"{work.name}, round {number}: {_short(result)} instead of {_short(work.answer)}"
            return time.process_time() - started, text
    return time.process_time() - started, ""


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 24 else text[:20] + "..."
