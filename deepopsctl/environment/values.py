"""Single values of people.yml and of lists of people: each is returned in its one form, or refused."""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Iterator
from datetime import date

from deepopsctl.environment.reserved_names import is_reserved
from deepopsctl.text.node_sets import shorten
from deepopsctl.text.problems import RefusedError
from deepopsctl.text.values import check_template

# below are the system's own accounts; from 100000 on come the subordinate ids of useradd
FIRST_ID, LAST_ID = 1000, 99_999
# systemd gives these to services with DynamicUser=, and 65534 is the user `nobody`
_TAKEN = range(61_184, 65_536)
# useradd's and groupadd's own limit
_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
# a group's name becomes `NAME_cpu` in Slurm as well
_GROUP = re.compile(r"[a-z_][a-z0-9_-]{0,27}")
_MAIL = re.compile(r"[A-Za-z0-9_.+-]{1,64}@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*")
_SHELL = re.compile(r"(/[A-Za-z0-9_.+-]+)+")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_KEY = re.compile(r"(\S+) ([A-Za-z0-9+/]+={0,2})(?: (.*))?")
_COMMENT = re.compile(r"[A-Za-z0-9 _.@+:/-]*")
KEY_TYPES = (
    "ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa",
    "sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com",
)  # fmt: skip
_LONGEST_NAME = 100


def check_login(name: str) -> str:
    """A login name."""
    if not _NAME.fullmatch(name):
        hint = "up to 32 lower-case letters, digits, - and _, and no digit first"
        raise RefusedError(f"{shorten(name)!r} is not a login name", hint)
    return _not_reserved(name)


def check_group(name: str) -> str:
    """The name of a group, which is that of a Slurm account, too."""
    if not _GROUP.fullmatch(name):
        hint = "up to 28 lower-case letters, digits, - and _, and no digit first"
        raise RefusedError(f"{shorten(name)!r} is not a name of a group", hint)
    return _not_reserved(name)


def _not_reserved(name: str) -> str:
    if is_reserved(name):
        what = f"{name} is the name of an account or group of the system, of Slurm or of a package"
        raise RefusedError(what, "choose another name: it has, or gets with a package, rights that are not a person's")
    return name


def parse_id(text: str) -> int:
    """A user's or group's id."""
    if not re.fullmatch(r"[0-9]{1,10}", text):
        raise RefusedError(f"{shorten(text)!r} is not a valid id", "write a number")
    number = int(text)
    if not FIRST_ID <= number <= LAST_ID:
        raise RefusedError(f"{number} is not between {FIRST_ID} and {LAST_ID}", "others are the system's own")
    if number in _TAKEN:
        message = f"{number} is one of the ids that systemd gives to services ({_TAKEN[0]} to {_TAKEN[-1]})"
        raise RefusedError(message, "choose one below or above")
    return number


def free_ids(first: int, avoided: range) -> Iterator[int]:
    """The ids from `first` on that people may have, in order; a RefusedError at their end."""
    yield from (number for number in range(first, LAST_ID + 1) if number not in _TAKEN and number not in avoided)
    raise RefusedError(f"there is no free id between {first} and {LAST_ID}", "give one with --uid or --gid")


def parse_date(text: str) -> date:
    """A day: `2027-08-31`."""
    try:
        if _DATE.fullmatch(text):
            return date.fromisoformat(text)
    except ValueError:
        pass
    raise RefusedError(f"{shorten(text)!r} is not a valid date", "write it like 2027-08-31")


def check_full_name(text: str) -> str:
    """A person's name: a field of /etc/passwd, which `:` and `,` would end."""
    if not text.isprintable() or set(text) & set(':,="\\') or len(text) > _LONGEST_NAME:
        hint = f'up to {_LONGEST_NAME} characters without : , = " and \\'
        raise RefusedError(f"{shorten(text)!r} can't be a name in /etc/passwd", hint)
    return check_template(text.strip())


def check_mail(text: str) -> str:
    """A mail address."""
    if not _MAIL.fullmatch(text):
        raise RefusedError(f"{shorten(text)!r} is not a mail address", "write NAME@DOMAIN")
    return text


def check_shell(text: str) -> str:
    """The path of a login shell."""
    if not _SHELL.fullmatch(text):
        raise RefusedError(f"{shorten(text)!r} is not a path of a shell", "write it like /bin/bash")
    return text


def parse_shares(text: str) -> int:
    """Shares of an account."""
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise RefusedError(f"{shorten(text)!r} is not a number of shares", "write a whole number")
    return int(text)


def check_public_key(text: str) -> str:
    """One public key without options: its type, its bytes, and a comment."""
    line = " ".join(text.split())
    match = _KEY.fullmatch(line)
    if "PRIVATE KEY" in text:
        raise RefusedError("is a private key", "its owner should make a new key; give the file that ends with .pub")
    if match is None or match[1] not in KEY_TYPES:
        known = ", ".join(KEY_TYPES[:2])
        raise RefusedError(f"{shorten(line)!r} is not a public key", f"give the line of the .pub file ({known} ...)")
    if _type_inside(match[2]) != match[1]:
        raise RefusedError(f"the {match[1]} key is cut off or damaged", "copy the whole line of the .pub file")
    # a file with a line for each of several computers
    if not {*KEY_TYPES}.isdisjoint((match[3] or "").split()):
        raise RefusedError("is more than one key", "list each key for itself; a file for `--key` has one")
    if not _COMMENT.fullmatch(match[3] or ""):
        raise RefusedError(f"the comment of a key is not plain: {shorten(match[3])!r}", "leave it out")
    return line


def _type_inside(encoded: str) -> str:
    """The type that a key itself names; '' where it is damaged."""
    try:
        data = base64.b64decode(encoded, validate=True)
        (length,) = struct.unpack_from(">I", data)
    except (binascii.Error, struct.error):
        return ""
    inside, rest = data[4 : 4 + length], data[4 + length :]
    if not rest:
        return ""
    # every field begins with its length in four bytes
    while len(rest) >= 4:
        (size,) = struct.unpack_from(">I", rest)
        if len(rest) < 4 + size:
            return ""
        rest = rest[4 + size :]
    return "" if rest else inside.decode("ascii", "replace")
