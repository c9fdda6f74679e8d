"""Tables as squeue and sinfo print them for `-O FIELD:.0SEPARATOR,...`: whole fields, and ends that no text has.

Reasons and accounts are user input with arbitrary characters: `asking` marks the real separators.
"""

from __future__ import annotations

import re
from typing import Iterator, List, Mapping, Sequence, Tuple

# ASCII's own: unit separator, record separator
FIELD, RECORD = "\x1f", "\x1e"
_UNITS = {"": 20, "K": 10, "M": 20, "G": 30, "T": 40, "P": 50}
_AMOUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?)([KMGTP]?)")
_GRES = re.compile(r"gpu(?::([A-Za-z][^:(,]*))?(?::([0-9]+))?(?:\([^)]*\))?")


def layout(fields: Sequence[str]) -> str:
    """The argument of -O. `.0` sets an unlimited width: without it, texts are cut."""
    return "".join(f"{name}:.0{FIELD}," for name in fields[:-1]) + f"{fields[-1]}:.0{RECORD}"


def unmarked(text: str, mark: str) -> str:
    """The text with those separators alone that have the mark behind them, and without it."""
    foreign = re.sub("[{}{}](?!{})".format(FIELD, RECORD, mark), "?", text) if mark else text
    return foreign.replace(mark, "") if mark else text


def rows(text: str, fields: int) -> Tuple[List[List[str]], int]:
    """The records, and how many there were that can't be read: a text in them must have had a separator in it."""
    records = [each.lstrip("\n").split(FIELD) for each in text.split(RECORD)]
    if records[-1] == [""]:
        records.pop()
    whole = [[word.strip() for word in record] for record in records if len(record) == fields]
    return whole, len(records) - len(whole)


def whole_number(text: str) -> int:
    """A number; 0 for `N/A`, `Unknown`, `n/s` and what else stands for none."""
    return int(text) if text.isascii() and text.isdigit() else 0


def mebibytes(text: str) -> int:
    """Bytes of an amount as Slurm writes memory: `2000`, `16000M`, `1.50T`; 0 for none."""
    match = _AMOUNT.fullmatch(text)
    return int(float(match[1]) * (1 << _UNITS[match[2]])) if match else 0


def tres(text: str) -> Mapping[str, str]:
    """`cpu=4,mem=2000M,gres/gpu:h100=2` as a mapping."""
    pairs = (pair.partition("=") for pair in text.split(","))
    return {name: value for name, separator, value in pairs if separator}


def gpus_of_tres(tres_values: Mapping[str, str]) -> Mapping[str, int]:
    """{type: count}; '' counts those without a type."""
    typed = {
        name[len("gres/gpu:") :]: whole_number(value)
        for name, value in tres_values.items()
        if name.startswith("gres/gpu:")
    }
    untyped = whole_number(tres_values.get("gres/gpu", "")) - sum(typed.values())
    return {**typed, **({"": untyped} if untyped > 0 else {})}


def gpus_of_gres(text: str) -> Mapping[str, int]:
    """{type: count} of `gpu:h100:4(S:0-1),gpu:2(IDX:0,3)`; what is no GPU is left out."""
    gpus: dict[str, int] = {}
    for gpu_type, count in _gres(text):
        gpus[gpu_type] = gpus.get(gpu_type, 0) + count
    return gpus


def _gres(text: str) -> Iterator[Tuple[str, int]]:
    # commas stand between resources, and within their brackets
    for word in re.split(r",(?![^(]*\))", text):
        match = _GRES.fullmatch(word)
        if match:
            yield match[1] or "", int(match[2] or 1)
