"""The users of a cluster and their groups, in the node's own files: all of them in one change, whatever their number.

useradd would write every file once for each user. Here they are read, changed and replaced once, with the lock that
useradd, passwd and systemd-sysusers take, too. No account is ever removed: one that is no longer declared expires.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    command as node_command,
    errors as node_errors,
    files as node_files,
    identities as node_identities,
    step as node_step,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node.waiting import wait_until
from ansible_collections.deepopsctl.cluster.plugins.module_utils.storage import mount_table

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
ETC = "/etc"
SKELETON = "/etc/skel"
KEYS = "/etc/ssh/deepopsctl/keys"
SSHD = "/etc/ssh/sshd_config.d/40-deepopsctl-people.conf"
SSHD_CONFIG = "/etc/ssh/sshd_config"
SSH_UNIT = "ssh.service"
_INCLUDE = re.compile(rb"^\s*include\s+/etc/ssh/sshd_config\.d/\*\.conf", re.MULTILINE | re.IGNORECASE)
_PLACE = re.compile(r"[A-Za-z0-9%/._-]+")
# the modes of new files; those that are there keep theirs
FILES = {"passwd": 0o644, "group": 0o644, "shadow": 0o640, "gshadow": 0o640, "subuid": 0o644, "subgid": 0o644}
# the places of fields in lines of passwd, group, gshadow and shadow
UID, GID, GECOS, HOME, SHELL, MEMBERS, GSHADOW_MEMBERS, EXPIRY = 2, 3, 4, 5, 6, 3, 3, 7
# so many fields has a line; others (`+` of NIS, comments) stay as they are
WIDTH = {"passwd": 7, "group": 4, "shadow": 9, "gshadow": 4, "subuid": 3, "subgid": 3}
# long ago: an account that is no longer declared
CLOSED = "1"
# subordinate ids, for containers of the user's own: above what useradd gives, 65,536 for each uid of FIRST_UID and up
FIRST_UID, SUB_START, SUB_COUNT = 60000, 671088640, 65536
LOCK_S = 60


class Tables:
    """The node's files as lines; `index` leads from a name to its fields."""

    def __init__(self) -> None:
        self.lines: dict[str, list[list[str]]] = {}
        self.index: dict[str, dict[str, list[str]]] = {}
        for name in FILES:
            text = (node_files.read(os.path.join(ETC, name)) or b"").decode("utf-8", "surrogateescape")
            lines = text.split("\n")
            if not lines[-1]:
                lines.pop()
            # only at line feeds: users choose what is in the field of their name (chfn)
            self.lines[name] = [line.split(":") for line in lines]
            self.index[name] = {}
            for fields in self.lines[name]:
                if len(fields) == WIDTH[name] and not fields[0].startswith(("#", "+", "-")):
                    self.index[name].setdefault(fields[0], fields)
        self.before = {name: self.text(name) for name in FILES}

    def text(self, name: str) -> str:
        """A table as its file has it."""
        return "".join(f"{':'.join(fields)}\n" for fields in self.lines[name])

    def add(self, name: str, *fields: str) -> None:
        """Add a row whose first field is its key; lines that are there stay as they are."""
        row = list(fields)
        self.lines[name].append(row)
        self.index[name][row[0]] = row

    def changed(self) -> list[str]:
        """The names of the tables that differ from their files."""
        return [name for name in FILES if self.text(name) != self.before[name]]

    def write(self) -> None:
        """Replace the files that changed; groups first, so that no user has one that is not there."""
        for name in ("group", "gshadow", "passwd", "shadow", "subuid", "subgid"):
            if self.text(name) == self.before[name]:
                continue
            path = os.path.realpath(os.path.join(ETC, name))
            ids, mode = (0, 0), FILES[name]
            with contextlib.suppress(OSError):
                status = os.stat(path)
                ids, mode = (status.st_uid, status.st_gid), status.st_mode & 0o7777
                # as useradd leaves one; never for a moment with a mode that others can read hashes of passwords by
                node_files.write(path + "-", node_files.read(path) or b"", ids, mode, [])
            node_files.write(path, self.text(name).encode("utf-8", "surrogateescape"), ids, mode, [])


def add_files(wanted: dict[str, Any]) -> None:
    """Add what `people` wants of files to those of the step: a file of keys for each person, and sshd's setting."""
    people = wanted["people"]
    if not people:
        return
    keys = [person for person in people["people"] if person.get("keys")]
    wanted["directories"] = [{"path": path, "owner": "root", "group": "root", "mode": "0755"}
                             for path in (os.path.dirname(KEYS), KEYS)] + wanted["directories"]  # fmt: skip
    wanted["files"] = [
        *(_file(os.path.join(KEYS, person["name"]), "".join(f"{key}\n" for key in person["keys"])) for person in keys),
        _file(SSHD, f"AuthorizedKeysFile {' '.join(people['authorized_keys_files'])} {KEYS}/%u\n"),
        *wanted["files"],
    ]
    wanted["units"] = [
        {"name": SSH_UNIT, "running": True, "restart_on": [], "reload_on": [SSHD], "port": None, "optional": False},
        *wanted["units"],
    ]


def _file(path: str, content: str) -> dict[str, Any]:
    return {"path": path, "content": node_files.HEADER + content, "secret_base64": None, "block": None,
            "owner": "root", "group": "root", "mode": "0644", "validate": []}  # fmt: skip


def ensure_people(step: node_step.Step, people: Mapping[str, Any]) -> None:
    """Everybody with groups, expiry and home; refused as a whole where another account has an id or a name."""
    owned = step.owned
    check_sshd(step, people["authorized_keys_files"])
    with _locked() if not step.dry else contextlib.nullcontext():
        tables = Tables()
        conflicts = node_identities.conflicts(people["people"], people["groups"])
        conflicts += expiry_conflicts(tables, people, owned)
        if conflicts:
            step.fail(
                node_identities.first_few(conflicts),
                "give the person or group another name or id in people.yml, or correct the node's account",
            )
        present = set(tables.index["passwd"])
        known = set(owned["people"])
        for person in people["people"]:
            # an account that was there before is adopted: its shell and home stay
            if person["name"] not in known and person["name"] in present:
                owned["adopted"].append(person["name"])
        owned["people"] = sorted(known | {person["name"] for person in people["people"]})
        owned["groups"] = sorted({*owned["groups"], *(group["name"] for group in people["groups"])})
        step.save_owned()
        change(tables, people, owned, step.did)
        if tables.changed() and not step.dry:
            tables.write()
    if people["homes_in"]:
        ensure_homes(step, people, tables)
    left = left_behind(people, owned)
    if left and people["name_left"]:
        step.module.warn(f"no longer in people.yml, account expired, files left as they are: {', '.join(left)}")
    step.record["people"] = facts([group["name"] for group in people["groups"]], owned["people"], tables)


def left_behind(people: Mapping[str, Any], owned: Mapping[str, Sequence[str]]) -> list[str]:
    """Who is no longer declared; everything of theirs is still on the node."""
    return sorted(set(owned["people"]) - {person["name"] for person in people["people"]})


def check_sshd(step: node_step.Step, kept: Sequence[str]) -> None:
    """Refuse to hide a place of keys that this node's sshd reads and the setting does not have."""
    if not _INCLUDE.search(node_files.read(SSHD_CONFIG) or b""):
        step.fail(f"{SSHD_CONFIG} does not include sshd_config.d/*.conf", "add that line of the distribution's again")
    wrong = [place for place in kept if not _PLACE.fullmatch(place)]
    if wrong:
        step.fail(f"people_authorized_keys_files: {wrong[0]!r} is not a path", "write it like .ssh/authorized_keys")
    output = node_command.run(["sshd", "-T"]).output
    lines = [line.split()[1:] for line in output.splitlines() if line.startswith("authorizedkeysfile ")]
    places = [place for line in lines for place in line if place not in ("none", KEYS + "/%u")]
    lost = [place for place in places if place not in kept]
    if lost:
        step.fail(
            f"sshd reads keys from {', '.join(lost)} here, which it would no longer do",
            f"add it to people_authorized_keys_files: [{', '.join([*kept, *lost])}]",
        )


def expiry_conflicts(tables: Tables, people: Mapping[str, Any], owned: Mapping[str, Sequence[str]]) -> list[str]:
    """Sentences for accounts that are about to be adopted and would be opened by that."""
    sentences = []
    for person in people["people"]:
        shadow = tables.index["shadow"].get(person["name"])
        if person["name"] in owned["people"] or shadow is None or not shadow[EXPIRY]:
            continue
        if shadow[EXPIRY] != node_identities.expiry(person.get("expires", "")):
            day = (node_identities.EPOCH + datetime.timedelta(days=int(shadow[EXPIRY]))).isoformat()
            sentences.append(
                f"{person['name']} expires on {day} here, {person.get('expires') or 'never'} in people.yml"
            )
    return sentences


def change(
    tables: Tables, people: Mapping[str, Any], owned: Mapping[str, Sequence[str]], did: Callable[..., None]
) -> None:
    """Change the tables to what is declared; `did` hears of each change."""
    for group in people["groups"]:
        if group["name"] not in tables.index["group"] and node_identities.gid_of(group["name"]) is None:
            tables.add("group", group["name"], "x", str(group["gid"]), "")
            tables.add("gshadow", group["name"], "!", "", "")
            did(
                f"created the group {group['name']}",
                "group",
                group["name"],
                "add",
                detail=f"id {group['gid']}",
            )
    for person in people["people"]:
        if person["name"] in tables.index["passwd"]:
            _update(tables, person, owned, did)
        elif node_identities.uid_of(person["name"]) is None:
            _create(tables, person, people["home"], did)
    declared = {person["name"] for person in people["people"]}
    for name in owned["people"]:
        if name not in declared:
            _set_expiry(tables, name, CLOSED, did)
    _set_members(tables, people, owned, did)


def _create(tables: Tables, person: Mapping[str, Any], home: str, did: Callable[..., None]) -> None:
    name, uid = person["name"], str(person["uid"])
    if name not in tables.index["group"]:
        tables.add("group", name, "x", uid, "")
        tables.add("gshadow", name, "!", "", "")
    gecos, shell = person.get("full_name", ""), person.get("shell") or "/bin/bash"
    tables.add("passwd", name, "x", uid, uid, gecos, os.path.join(home, name), shell)
    today = (datetime.date.today() - node_identities.EPOCH).days
    tables.add(
        "shadow", name, "*", str(today), "0", "99999", "7", "", node_identities.expiry(person.get("expires", "")), ""
    )
    start = SUB_START + (int(uid) - FIRST_UID) * SUB_COUNT
    for table in ("subuid", "subgid") if int(uid) >= FIRST_UID else ():
        if name not in tables.index[table]:
            tables.add(table, name, str(start), str(SUB_COUNT))
    did(f"created the user {name}", "account", name, "add", detail=f"id {uid}")


def _update(
    tables: Tables, person: Mapping[str, Any], owned: Mapping[str, Sequence[str]], did: Callable[..., None]
) -> None:
    name, fields = person["name"], tables.index["passwd"][person["name"]]
    if name not in owned["adopted"]:
        gecos, shell = person.get("full_name", ""), person.get("shell") or "/bin/bash"
        if [fields[GECOS], fields[SHELL]] != [gecos, shell]:
            fields[GECOS], fields[SHELL] = gecos, shell
            did(f"set name and shell of {name}", "account", name, "modify", detail=f"{gecos}, {shell}")
    _set_expiry(tables, name, node_identities.expiry(person.get("expires", "")), did)


def _set_expiry(tables: Tables, name: str, days: str, did: Callable[..., None]) -> None:
    shadow = tables.index["shadow"].get(name)
    if shadow is None or shadow[EXPIRY] == days:
        return
    shadow[EXPIRY] = days
    if days == CLOSED:
        text = "closed"
    else:
        text = (
            f"expires {(node_identities.EPOCH + datetime.timedelta(days=int(days))).isoformat()}"
            if days
            else "expires never"
        )
    did(f"{name} {text}", "account", name, "modify", detail=text)


def _set_members(
    tables: Tables, people: Mapping[str, Any], owned: Mapping[str, Sequence[str]], did: Callable[..., None]
) -> None:
    """Of managed groups, managed people are members as declared; other members are a site's own."""
    declared: dict[str, set[str]] = {name: set() for name in owned["groups"]}
    for person in people["people"]:
        for name in person["groups"]:
            declared.setdefault(name, set()).add(person["name"])
    managed = set(owned["people"])
    for name, members in declared.items():
        for table in ("group", "gshadow"):
            fields = tables.index[table].get(name)
            if fields is None:
                continue
            now = [member for member in fields[-1].split(",") if member]
            wanted = [member for member in now if member not in managed or member in members]
            wanted += sorted(members - set(now))
            if wanted == now:
                continue
            fields[-1] = ",".join(wanted)
            if table == "group":
                gone, new = sorted(set(now) - set(wanted)), sorted(set(wanted) - set(now))
                detail = ", ".join([f"+{each}" for each in new] + [f"-{each}" for each in gone])
                did(f"set the members of {name}: {detail}", "group", name, "modify", detail=detail)


def facts(groups: Sequence[str], names: Sequence[str], tables: Tables | None = None) -> dict[str, dict[str, str]]:
    """What the gate compares: the groups that it is about, and of each person ids, expiry and which of these."""
    tables = tables or Tables()
    members: dict[str, list[str]] = {}
    for group in groups:
        for name in tables.index["group"].get(group, [""])[-1].split(","):
            members.setdefault(name, []).append(group)
    return {
        "groups": {group: tables.index["group"].get(group, ["", "", ""])[2] for group in groups},
        "people": {name: _facts_of(name, tables, members.get(name, [])) for name in names},
    }


def _facts_of(name: str, tables: Tables, groups: Sequence[str]) -> str:
    fields, shadow = tables.index["passwd"].get(name), tables.index["shadow"].get(name)
    if fields is None:
        return ""
    expires = shadow[EXPIRY] if shadow else ""
    return ":".join([fields[UID], fields[GID], fields[SHELL], expires, ",".join(sorted(groups))])


def differences(recorded: Mapping[str, Mapping[str, str]] | None) -> list[str]:
    """Sentences for what is no longer as it was recorded."""
    if not recorded:
        return []
    now = facts(list(recorded["groups"]), list(recorded["people"]))
    sentences = [
        f"the group {name} was changed" for name, gid in recorded["groups"].items() if now["groups"][name] != gid
    ]
    changed = [name for name, text in recorded["people"].items() if now["people"][name] != text]
    if len(changed) > node_identities.MOST_NAMED:
        return [*sentences, f"the accounts of {len(changed)} people were changed"]
    return [*sentences, *(f"the account {name} was changed" for name in changed)]


def _refusal(descriptor: int) -> OSError | None:
    """Why the lock can't be had now; None where it was taken."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error
    return None


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """The lock of lckpwdf(3)."""
    descriptor = os.open(os.path.join(ETC, ".pwd.lock"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        refused = wait_until(lambda: _refusal(descriptor), LOCK_S, 0.1, lambda error: error is None)
        if refused:
            raise refused
        yield
    finally:
        os.close(descriptor)


def ensure_homes(step: node_step.Step, people: Mapping[str, Any], tables: Tables) -> None:
    """Make the homes that are not there; one that is there stays as it is."""
    base, point = people["homes_in"], people["homes_mounted"]
    if point and not mount_table.is_mounted(point):
        step.module.warn(f"{point} is not mounted here: no home was made")
        step.wanted["digest"] = ""
        return
    here = [person for person in people["people"] if _home_is_here(person["name"], people, tables)]
    if warn_of_others(base, here, step.module.warn):
        step.wanted["digest"] = ""
    missing = [person for person in here if not os.path.lexists(os.path.join(base, person["name"]))]
    if not missing:
        return
    made = missing if step.dry else make_homes(base, missing, step.module.warn)
    if len(made) < len(missing):
        # the next deploy tries again
        step.wanted["digest"] = ""
    for person in made:
        step.did(f"created the home of {person['name']}", "directory", os.path.join(base, person["name"]), "set")


def make_homes(base: str, people: Sequence[Mapping[str, Any]], warn: Callable[[str], None]) -> list[Mapping[str, Any]]:
    """Make homes for these people; returns those whose home could be made. Refused where others than root may write."""
    status = os.stat(base) if os.path.isdir(base) else None
    if status and (status.st_uid != 0 or status.st_mode & 0o022):
        message = f"{base} can be written by others than root: no home is made there"
        raise node_errors.HintedError(message, "chown root and chmod 755 it")
    made, refused = [], []
    for person in people:
        uid = int(person["uid"])
        try:
            make_home(base, person["name"], uid, int(person.get("gid", uid)))
            made.append(person)
        except PermissionError:
            refused.append(person["name"])
    if refused:
        names = node_identities.first_few(refused)
        warn(f"root may not make homes in {base} (root is squashed?): make on its server: {names}")
    return made


def _home_is_here(name: str, people: Mapping[str, Any], tables: Tables) -> bool:
    """Whether a home is where homes are made; an adopted account may have its home elsewhere."""
    fields = tables.index["passwd"].get(name)
    return fields is None or fields[HOME] == os.path.join(people["home"], name)


def warn_of_others(base: str, people: Sequence[Mapping[str, Any]], warn: Callable[[str], None]) -> bool:
    """Warn of homes with another owner, who decides what their users run at a login; whether there is any."""
    sentences = []
    for person in people:
        path = os.path.join(base, person["name"])
        try:
            # only root makes links there
            owner = os.stat(path).st_uid
        except OSError:
            continue
        if owner != int(person["uid"]):
            sentences.append(f"{path} belongs to the user id {owner}, not {person['uid']}")
    if sentences:
        hint = "move it away, or give it to its user: chown -R"
        warn(f"homes with another owner: {node_identities.first_few(sentences)}; {hint}")
    return bool(sentences)


def make_home(base: str, name: str, uid: int, gid: int) -> None:
    """A copy of the skeleton, complete before a user sees it: until then only root gets in.

    By handles: root of a node that has the same file system could put links in place of what root makes here.
    """
    os.makedirs(base, mode=0o755, exist_ok=True)
    within = os.open(base, _DIRECTORY)
    try:
        temporary = f".deepopsctl-{name}"
        if os.path.lexists(os.path.join(base, temporary)):
            shutil.rmtree(os.path.join(base, temporary))
        _copy_directory(SKELETON if os.path.isdir(SKELETON) else "", temporary, within, uid, gid)
        os.rename(temporary, name, src_dir_fd=within, dst_dir_fd=within)
    finally:
        os.close(within)


def _copy_directory(source: str, name: str, within: int, uid: int, gid: int) -> None:
    """A directory and what is in it, each given away when it is complete; '' copies nothing."""
    os.mkdir(name, 0o700, dir_fd=within)
    made = os.open(name, _DIRECTORY, dir_fd=within)
    try:
        for each in sorted(os.listdir(source)) if source else []:
            _copy_entry(os.path.join(source, each), each, made, uid, gid)
        os.fchown(made, uid, gid)
    finally:
        os.close(made)


def _copy_entry(source: str, name: str, within: int, uid: int, gid: int) -> None:
    mode = os.lstat(source).st_mode
    if stat.S_ISLNK(mode):
        os.symlink(os.readlink(source), name, dir_fd=within)
        os.chown(name, uid, gid, dir_fd=within, follow_symlinks=False)
    elif stat.S_ISDIR(mode):
        _copy_directory(source, name, within, uid, gid)
        _set_mode(name, within, mode)
    elif stat.S_ISREG(mode):
        how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(source, "rb") as original, os.fdopen(os.open(name, how, 0o600, dir_fd=within), "wb") as copy:
            shutil.copyfileobj(original, copy)
            os.fchown(copy.fileno(), uid, gid)
            os.fchmod(copy.fileno(), stat.S_IMODE(mode))


def _set_mode(name: str, within: int, mode: int) -> None:
    made = os.open(name, _DIRECTORY, dir_fd=within)
    try:
        os.fchmod(made, stat.S_IMODE(mode))
    finally:
        os.close(made)
