"""The section `directory` of people.yml: read, checked, and its people and accounts once nodes have asked for them."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path as FilePath, PurePosixPath
from typing import Any

from deepopsctl.environment import values
from deepopsctl.environment.reserved_names import is_reserved
from deepopsctl.errors import InputError
from deepopsctl.model.directory import LOWEST_ID, Directory, DirectoryAccount
from deepopsctl.model.people import accounts_of
from deepopsctl.text.node_sets import shorten
from deepopsctl.text.problems import Problems, RefusedError
from deepopsctl.text.sections import DirectorySection, SectionReader, dotted
from deepopsctl.text.source import read_source
from deepopsctl.text.values import suggest
from deepopsctl.text.yaml_reader import Path

KEY = "directory"
SCHEMAS = ("rfc2307", "rfc2307bis", "ad")
# from here on are the subordinate ids of users of people.yml (plugins/module_utils/node/people.py)
_SUBORDINATE = 671_088_640
_SERVER = re.compile(r"ldaps?://[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?")
_DN = re.compile(r"[A-Za-z][A-Za-z0-9-]*=[^,]+(,[A-Za-z][A-Za-z0-9-]*=[^,]+)*")
_FILE = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*")
# a directory's group may have spaces; commas separate groups in sssd.conf
_GROUP = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_. -]{0,62}[A-Za-z0-9_.-])?")
_LONGEST = 1000

Entry = Mapping[str, Any]


def read_directory(reader: SectionReader, content: object, numbers: Mapping[int, Path]) -> Directory | None:
    """The directory service that people.yml declares; `numbers` has the ids of people.yml and where they stand."""
    path: Path = (KEY,)
    section = reader.fit(DirectorySection, content, path) if content is not None else None
    if section is None:
        return None
    first, last = reader.value((*path, "ids"), _parse_ids, section.ids, (LOWEST_ID, 0))
    if bool(section.access_filter) == bool(section.access_groups):
        message = "needs access_groups or access_filter, and one of them only"
        refusal = RefusedError(message, "write access_groups: [GROUP]: who may log in")
        reader.problems.refuse(reader.at(path), KEY, refusal)
    directory = Directory(
        servers=tuple(_each(reader, (*path, "servers"), _check_server, section.servers)),
        base=reader.value((*path, "base"), _check_dn, section.base, ""),
        ca=reader.value((*path, "ca"), _check_file, section.ca, ""),
        schema=reader.value((*path, "schema"), _check_schema, section.schema_ or SCHEMAS[0], SCHEMAS[0]),
        bind_dn=reader.value((*path, "bind_dn"), _check_dn, section.bind_dn, "") if section.bind_dn else "",
        first_id=first,
        last_id=last,
        access_filter=reader.value((*path, "access_filter"), _check_filter, section.access_filter, ""),
        access_groups=tuple(_each(reader, (*path, "access_groups"), _check_group, section.access_groups)),
        ssh_keys=section.ssh_keys,
        passwords=section.passwords,
        accounts=tuple(_accounts(reader, section, path)),
    )
    for number, place in numbers.items():
        if number in directory.ids:
            message = f"{number} is one of the directory's ids ({first} to {last}, `directory.ids`)"
            hint = "give ids outside of that range (`first_id` says where new ones begin)"
            reader.problems.refuse(reader.at(place), dotted(place), RefusedError(message, hint))
    return directory


def _accounts(reader: SectionReader, section: DirectorySection, path: Path) -> Iterator[DirectoryAccount]:
    seen: set[str] = set()
    for index, entry in enumerate(section.accounts):
        place: Path = (*path, "accounts", index)
        yield DirectoryAccount(
            group=reader.value((*place, "group"), _check_group, entry.group, entry.group),
            account=reader.value((*place, "account"), values.check_group, entry.account, entry.account),
            shares=reader.value((*place, "shares"), values.parse_shares, entry.shares, 0) if entry.shares else 0,
        )
        if entry.account in seen:
            refusal = RefusedError(f"{entry.account} is listed twice", "an account follows one group")
            reader.problems.refuse(reader.at((*place, "account")), dotted((*place, "account")), refusal)
        seen.add(entry.account)


def _each(reader: SectionReader, path: Path, check: Callable[[str], str], items: Iterable[str]) -> Iterator[str]:
    yield from (reader.value((*path, index), check, item, "") for index, item in enumerate(items))


def _check_server(text: str) -> str:
    if not _SERVER.fullmatch(text):
        hint = "write ldaps://NAME, or ldap://NAME for StartTLS"
        raise RefusedError(f"{shorten(text)!r} is not an address of a directory server", hint)
    return text


def _check_dn(text: str) -> str:
    if not text.isprintable() or len(text) > _LONGEST or not _DN.fullmatch(text):
        raise RefusedError(f"{shorten(text)!r} is not a distinguished name", "write it like dc=example,dc=com")
    return text


def _check_file(text: str) -> str:
    if not _FILE.fullmatch(text) or ".." in PurePosixPath(text).parts:
        hint = "copy the certificate into the cluster directory, and write its name here: directory-ca.pem"
        raise RefusedError(f"{shorten(text)!r} is not a file of the cluster directory", hint)
    return text


def _check_schema(text: str) -> str:
    if text not in SCHEMAS:
        raise RefusedError(f"{shorten(text)!r} is not a valid schema", suggest(text, list(SCHEMAS)))
    return text


def _check_filter(text: str) -> str:
    plain = text.isprintable() and text == text.strip() and len(text) <= _LONGEST
    if text and not (plain and text.startswith("(") and text.endswith(")") and text.count("(") == text.count(")")):
        hint = "write it like (memberOf=cn=hpc,ou=groups,dc=example,dc=com)"
        raise RefusedError(f"{shorten(text)!r} is not an LDAP filter", hint)
    return text


def _check_group(text: str) -> str:
    if not _GROUP.fullmatch(text):
        hint = "letters, digits, spaces, _, . and -"
        raise RefusedError(f"{shorten(text)!r} is not a name of a directory's group", hint)
    if is_reserved(text):
        what = f"{text} is the name of a group of the system or of a package: nodes never ask the directory for it"
        raise RefusedError(what, "name another group of the directory, or write access_filter")
    return text


def _parse_ids(text: str) -> tuple[int, int]:
    if not text:
        return LOWEST_ID, 0
    match = re.fullmatch(r"([0-9]{1,10})-([0-9]{1,10})", text)
    if match is None:
        raise RefusedError(f"{shorten(text)!r} is not a range of ids", "write it like 20000-39999")
    first, last = int(match[1]), int(match[2])
    if not LOWEST_ID <= first <= last < _SUBORDINATE:
        message = f"{text} is not a range between {LOWEST_ID} and {_SUBORDINATE - 1}"
        raise RefusedError(message, "ids below are the system's own, those above subordinate ids of users")
    return first, last


def read_authority(directory: FilePath, name: str) -> str:
    """The text of the file with the authority's certificates; an InputError where it has none."""
    problems = Problems()
    text = read_source(directory / name, name, problems) or ""
    problems.raise_if_any()
    if "PRIVATE KEY" in text:
        raise InputError.single(name, "has a private key in it", "all users of the nodes can read it: take the key out")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except ssl.SSLError as error:
        hint = "it needs the certificate of the authority (PEM, -----BEGIN CERTIFICATE-----)"
        raise InputError.single(name, f"has no certificate that can be read: {error.reason}", hint) from error
    return text


def with_members(people: Mapping[str, Iterable[Entry]], directory: Entry, answer: Entry) -> dict[str, list[Entry]]:
    """people.yml's groups and people, with the accounts that follow the directory and their members.

    `answer` is what the controller asked for (node_programs/suites/validate_environment/directory.py). The order of the
    accounts decides about who is in several: the first is the default.
    """
    groups, everybody = list(people["groups"]), list(people["people"])
    known = {group["name"] for group in groups}
    members = {group["name"]: set(group["members"]) for group in answer.get("groups", ())}
    accounts = [(entry["account"], members.get(entry["group"], set())) for entry in directory["accounts"]]
    groups += [
        {"name": entry["account"], **({"shares": entry["shares"]} if "shares" in entry else {})}
        for entry in directory["accounts"]
        if entry["account"] not in known
    ]
    for person in answer.get("people", ()):
        mine = [account for account, names in accounts if person["name"] in names]
        if mine:
            everybody.append({"name": person["name"], "groups": mine})
    return {"groups": groups, "people": everybody}


def listed(directory: Entry, answer: Entry) -> list[dict[str, object]]:
    """Users of Slurm whom a group lists: not closed, even where the directory had no answer about them."""
    members = {group["name"]: group["members"] for group in answer.get("groups", ())}
    return [
        {"name": name, "account": account, "settings": {}}
        for entry in directory["accounts"]
        for name in members.get(entry["group"], ())
        for account in accounts_of(entry["account"])
    ]


def followed(directory: Entry, answer: Entry) -> list[str]:
    """The Slurm accounts in which only members of a group may submit jobs.

    Not those of a group that is unknown or has no members: more often than not that is an answer of a directory
    that is half away, and would close the account of everybody.
    """
    full = {group["name"] for group in answer.get("groups", ()) if group["members"]}
    return [name for entry in directory["accounts"] if entry["group"] in full for name in accounts_of(entry["account"])]


def account_names(directory: Entry) -> list[str]:
    """All Slurm accounts that follow the directory."""
    return [name for entry in directory["accounts"] for name in accounts_of(entry["account"])]
