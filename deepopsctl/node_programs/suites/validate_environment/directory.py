"""The directory service, as this node sees it: its answers by TLS, its groups with their members, ids that it has, too.

Only what `getent -s sss` answers is the directory's: other names are in the node's own files.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..._shared import command, identities
from ..._shared.checks import FAIL, PASS, WARN, Check, one_line
from ..._shared.waiting import wait_until
from .checks import check

TLS, LOOKUP, IDS = "environment-directory", "environment-directory-lookup", "environment-directory-ids"
AUTHORITY = "/etc/sssd/deepopsctl-ca.pem"
CONFIG, OURS = "/etc/sssd/sssd.conf", "deepopsctl"
# where SSSD takes questions of the name service
SOCKET = "/var/lib/sss/pipes/nss"
# ours, and what an earlier deploy had sshd call
KEYS_COMMANDS = ("/etc/ssh/deepopsctl/directory-keys", "/usr/bin/sss_ssh_authorizedkeys")
ANSWER_S = 60
CONNECT_S = 10
# so many names go into one call
BATCH = 200
# SSSD answers nothing in the first seconds after its start
SETTLED_S = 30
# RFC 4511: an extended request with the name of StartTLS, as message 1
START_TLS = b"\x30\x1d\x02\x01\x01\x77\x18\x80\x161.3.6.1.4.1.1466.20037"
# names that are safe in paths, arguments and in Slurm, which knows lower case only
_NAME = re.compile(r"[a-z_][a-z0-9_.-]{0,31}")

Entry = Mapping[str, Any]


def before(directory: Entry) -> list[str]:
    """Sentences for what is configured on this node and would be lost."""
    sentences = []
    text = _text(CONFIG)
    if text and OURS not in text.partition("\n")[0]:
        sentences.append(f"{CONFIG} is there already and not deepopsctl's: move it away")
    if directory["ssh_keys"]:
        rows = [line.split(None, 1) for line in command.run(["sshd", "-T"], 15).output.splitlines()]
        commands = [row[1] for row in rows if len(row) == 2 and row[0] == "authorizedkeyscommand"]
        other = [text for text in commands if text.split()[0] not in ("none", *KEYS_COMMANDS)]
        sentences += [f"sshd asks {text} for keys: write ssh_keys: false, or remove that" for text in other]
    return sentences


def wait(groups: Sequence[str]) -> bool:
    """Wait for an answer about one of its groups: SSSD has none in its first seconds. Returns whether there was one."""
    if not os.path.exists(SOCKET):
        # a plan before the first deploy
        return False
    return wait_until(lambda: any(_entries("group", groups)), SETTLED_S, 1)


def conflicts(people: Entry) -> list[str]:
    """Sentences for names and ids that both the directory and people.yml, or this node's own files, have."""
    users = {str(each["name"]): int(each["uid"]) for each in people.get("people", ())}
    groups = {**users, **{str(each["name"]): int(each["gid"]) for each in people.get("groups", ())}}
    users.update(_local("/etc/passwd"))
    groups.update(_local("/etc/group"))
    return [*_both("user", "passwd", users), *_both("group", "group", groups)]


def _both(noun: str, database: str, known: Mapping[str, int]) -> Iterator[str]:
    names = {number: name for name, number in known.items()}
    asked = [*known, *(str(number) for number in names)]
    for name, number in sorted({(row[0], int(row[2])) for row in _entries(database, asked)}):
        if name in known:
            yield f"the {noun} {name} is in the directory as well, with the id {number}"
        elif number in names:
            yield f"the id {number} of the {noun} {names[number]} is that of {name} in the directory"


def members(groups: Sequence[str]) -> dict[str, Any]:
    """The members of groups, as fresh as they can be had, and those of them who are users of the directory."""
    if not wait(groups) and not os.path.exists(SOCKET):
        return {"groups": [], "people": []}
    for name in groups:
        # an expired entry is asked for again, and answered from the cache where the directory is away
        command.run(["sss_cache", "--group=" + name], ANSWER_S)
    rows = {row[0]: row for row in _entries("group", groups)}
    listed = {name: [each for each in row[3].split(",") if each] for name, row in rows.items() if len(row) > 3}
    everybody = sorted({each for names in listed.values() for each in names})
    plain = [name for name in everybody if _NAME.fullmatch(name)]
    people: list[dict[str, Any]] = [
        {"name": row[0], "uid": int(row[2]), "gid": int(row[3])}
        for row in sorted(_entries("passwd", plain))
        if len(row) > 3
    ]
    resolved = {each["name"] for each in people}
    return {
        "groups": [
            {"name": name, "gid": int(rows[name][2]), "members": [each for each in names if _NAME.fullmatch(each)]}
            for name, names in sorted(listed.items())
        ],
        "people": people,
        "deepops_warnings": list(_unanswered(groups, listed, resolved)),
    }


def with_members(people: Entry, directory: Entry) -> dict[str, Any]:
    """people.yml's people and groups, with the members of the directory's groups and the accounts that follow these."""
    answer = members(directory["groups"])
    names = {group["name"]: group["members"] for group in answer["groups"]}
    mine: dict[str, list[str]] = {person["name"]: [] for person in answer["people"]}
    for entry in directory["accounts"]:
        for name in names.get(entry["group"], ()):
            mine.get(name, []).append(entry["account"])
    return {
        "people": [*people["people"], *({"name": name, "groups": groups} for name, groups in mine.items() if groups)],
        "groups": [*people["groups"], *({"name": entry["account"]} for entry in directory["accounts"])],
    }


def _unanswered(groups: Sequence[str], listed: Mapping[str, Sequence[str]], resolved: set[str]) -> Iterator[str]:
    """Warnings about groups that are not followed for now, and members who could not be taken."""
    skipped = sorted({name for names in listed.values() for name in names} - resolved)
    missing = [name for name in groups if name not in listed]
    empty = [name for name, names in listed.items() if not names]
    for sentence, names in (
        ("groups that are not there, or out of its ids", missing),
        ("groups without members, whose accounts stay as they are", empty),
        ("members who are not users of it, or have names that Slurm can't have", skipped),
    ):
        if names:
            yield f"directory service: {sentence}: {identities.first_few(names)}"


def verify_directory(node: str, directory: Entry, people: Entry) -> list[Check]:
    """Whether the directory answers with TLS, a lookup works, and no name is in both."""
    wait(directory["groups"])
    return [_servers(node, directory["servers"]), _lookup(node, directory["groups"]), _ids(node, people)]


def _servers(node: str, servers: Sequence[str]) -> Check:
    faults = {server: why_no_tls(server, AUTHORITY) for server in servers}
    failed = [f"{server}: {why}" for server, why in faults.items() if why]
    status = PASS if not failed else FAIL if len(failed) == len(servers) else WARN
    good = len(servers) - len(failed)
    return check(TLS, node, status, good, len(servers), "servers", one_line("; ".join(failed)))


def _lookup(node: str, groups: Sequence[str]) -> Check:
    answered = {row[0] for row in _entries("group", groups)}
    unknown = [name for name in groups if name not in answered]
    text = "not in the directory, or out of its ids: " + identities.first_few(unknown) if unknown else ""
    return check(LOOKUP, node, FAIL if unknown else PASS, len(groups) - len(unknown), len(groups), "groups", text)


def _ids(node: str, people: Entry) -> Check:
    both = conflicts(people)
    return check(IDS, node, FAIL if both else PASS, len(both), 0, "names and ids", identities.first_few(both))


def why_no_tls(server: str, authority: str) -> str:
    """Why this server has no TLS with a certificate of the authority; '' if it has."""
    scheme, _, rest = server.partition("://")
    host, _, port = rest.partition(":")
    try:
        context = ssl.create_default_context(cafile=authority)
        # as SSSD: an old authority of a site may lack extensions that Python asks for from 3.13 on
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        with socket.create_connection((host, int(port or (636 if scheme == "ldaps" else 389))), CONNECT_S) as plain:
            if scheme == "ldap":
                plain.sendall(START_TLS)
                if not _agreed(plain.recv(4096)):
                    return "refuses StartTLS"
            with context.wrap_socket(plain, server_hostname=host):
                return ""
    except (OSError, ValueError) as error:
        return str(getattr(error, "verify_message", "") or getattr(error, "strerror", "") or error)


def _agreed(answer: bytes) -> bool:
    """Whether an extended response has the result code 0."""
    return b"\x78" in answer and b"\x0a\x01\x00" in answer


def _entries(database: str, keys: Sequence[str]) -> Iterator[list[str]]:
    """The fields of what the directory has of these names and ids."""
    for start in range(0, len(keys), BATCH):
        answer = command.run(["getent", "-s", "sss", database, "--", *keys[start : start + BATCH]], ANSWER_S)
        for line in answer.output.splitlines():
            fields = line.split(":")
            if len(fields) > 2 and fields[2].isdecimal():
                yield fields


def _local(path: str) -> Iterator[tuple[str, int]]:
    """Names and ids of a file of the node's. Of the system's own, SSSD answers for none: `filter_users`, `min_id`."""
    for line in _text(path).splitlines():
        fields = line.split(":")
        if len(fields) > 2 and fields[2].isdecimal():
            yield fields[0], int(fields[2])


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""
