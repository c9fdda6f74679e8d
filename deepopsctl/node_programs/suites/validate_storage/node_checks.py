"""What root sees of a node's mounts: are they there, as asked for, answering; and does the server squash root."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple

from ..._shared import mount_table
from ..._shared.checks import FAIL, PASS, WARN, Check
from ..._shared.mount_table import Mounted
from . import children, mounts, operations, trials
from .checks import check, place, skip, trouble
from .inputs import Expected, Seen

MOUNTED, OPTIONS, ANSWERS, SQUASH, QUOTA = (
    "storage-mounted",
    "storage-options",
    "storage-answers",
    "storage-root-squash",
    "storage-quota",
)
Result = children.Result


class NodeReport(NamedTuple):
    """Checks, and by entry what trials may continue with."""

    checks: list[Check]
    seen: dict[str, Seen]


class Node:
    """One node under root's eyes; `user` is the ordinary one for whom files are made, `writes` whether it tries to.

    `quotas` has, by the server's directory, the limits that are not in force there.
    """

    def __init__(
        self,
        name: str,
        user: str,
        limit: float,
        token: str,
        quotas: Mapping[str, Mapping[str, Any]],
        *,
        writes: bool,
        table: str = mount_table.TABLE,
    ) -> None:
        self.name, self.user, self.limit, self.token, self.writes = name, user, limit, token, writes
        self.quotas = quotas
        self._table = table

    def run_checks(self, entries: Sequence[Expected]) -> NodeReport:
        """All entries of this node, none of which stops the others."""
        checks: list[Check] = []
        seen: dict[str, Seen] = {}
        for entry in entries:
            mount_check = _EntryChecks(self, entry)
            usable = mount_check.verify()
            if usable is not None:
                seen[entry.name] = usable
            checks += mount_check.checks
        return NodeReport(checks, seen)

    def mounted(self) -> list[Mounted]:
        """The kernel's table as it is now; reading it waits for no server."""
        return mount_table.read(self._table)

    def attempt(self, do: Callable[[], Result]) -> Result:
        """In a process of its own, with the node's limit."""
        return children.attempt(do, self.limit)

    def as_user(self, do: Callable[[], Result]) -> Result:
        """The same as the ordinary user."""
        return self.attempt(lambda: _become(self.user, do))


class _EntryChecks:
    def __init__(self, node: Node, entry: Expected) -> None:
        self.node, self.entry = node, entry
        self.target = place(node.name, entry.name)
        self.checks: list[Check] = []

    def add_check(
        self, name: str, status: str, measured: object = "", expected: object = "", message: str = ""
    ) -> None:
        self.checks.append(check(name, self.target, status, measured, expected, message=message))

    def verify(self) -> Seen | None:
        """The entry's checks; None where trials can't run, or would fill another file system."""
        entry = self.entry
        if entry.only_quota:
            self._quota()
            return None
        # one that is mounted at first use is mounted by this; and one that hangs is noticed
        first = self.node.attempt(lambda: operations.answers(entry.path + "/."))
        table = self.node.mounted()
        mount = mount_table.on_top(table, entry.path)
        if entry.fstype and not self._is_mounted(table, mount):
            return None
        if "hung" in first or "error" in first:
            self.add_check(ANSWERS, FAIL, "no answer", "an answer", trouble(first))
            return None
        self.add_check(ANSWERS, PASS, "an answer", "an answer")
        self._options(mount)
        self._quota()
        self._as_user()
        options = mount.options if mount else ()
        return Seen(mounts.name_bound(mount), mounts.data_bound(mount), options, entry.served_here)

    def _is_mounted(self, table: Sequence[Mounted], mount: Mounted | None) -> bool:
        entry = self.entry
        expected = f"{entry.type_text} from {entry.source}" if entry.fstype != "tmpfs" else "tmpfs"
        if mount is None:
            text = (
                f"nothing is mounted at {entry.path}: what is written there goes to {mounts.below(table, entry.path)}"
            )
            self.add_check(MOUNTED, FAIL, "not mounted", expected, text)
            return False
        wrong = mounts.wrong_mount(mount, entry.fstype, entry.source)
        if wrong is None and entry.fstype == "none":
            same = self.node.attempt(lambda: {"same": mounts.same_directory(entry.source, entry.path)})
            if not same.get("same"):
                text = trouble(same) or f"another directory is mounted at {entry.path}"
                wrong = mounts.Difference(mount.root, entry.source, text)
        if wrong:
            self.add_check(MOUNTED, FAIL, wrong.measured, wrong.expected, wrong.message)
        else:
            self.add_check(MOUNTED, PASS, f"{mount.type} from {mount.source}", expected)
        # a different mount is reported, and tested all the same
        return True

    def _options(self, mount: Mounted | None) -> None:
        if mount is None or not self.entry.options:
            return
        wrong = mounts.missing_options(mount, self.entry.options)
        asked, now = ",".join(self.entry.options), ",".join(difference.measured for difference in wrong)
        text = "; ".join(difference.message for difference in wrong)
        self.add_check(OPTIONS, FAIL if wrong else PASS, now if wrong else "in force", asked, text)

    def _quota(self) -> None:
        if not self.entry.quota:
            return
        result = self.node.quotas.get(self.entry.quota["path"], {"problem": "they could not be compared"})
        if result.get("problem"):
            self.add_check(QUOTA, FAIL, "no quotas", "in force", result["problem"])
        else:
            wrong = result["differences"]
            self.add_check(
                QUOTA, FAIL if wrong else PASS, "others" if wrong else "in force", "in force", "; ".join(wrong)
            )

    def _as_user(self) -> None:
        """Root squash needs a directory of the user's; on hosts without jobs, the trial to write is made here."""
        entry, node = self.entry, self.node
        has_squash = entry.type == "nfs" and not entry.served_here and not entry.read_only
        if has_squash and entry.squash == "none":
            self.checks.append(skip(SQUASH, self.target, "root is root there as cluster.yml asks (squash: none)"))
            has_squash = False
        if entry.read_only or not (has_squash or node.writes):
            return
        if not node.user or pwd.getpwnam(node.user).pw_uid == 0:
            for name in [SQUASH] * has_squash + [trials.WRITE] * node.writes:
                self.checks.append(skip(name, self.target, "the suite runs as root here: it takes an ordinary user"))
            return
        directory, status, reason = self._make()
        if node.writes:
            self.add_check(trials.WRITE, status, "written" if directory else "nothing", "written", reason)
        try:
            if directory and has_squash:
                self._squash(directory)
            elif has_squash:
                self.checks.append(skip(SQUASH, self.target, "the user can write nothing here: " + reason))
        finally:
            if directory:
                node.as_user(lambda: operations.remove([directory]))

    def _make(self) -> tuple[str, str, str]:
        """A directory of the user's with a file in it; '' with the reason where there is none."""
        entry, node = self.entry, self.node
        base = node.as_user(lambda: operations.base(entry.path, entry.user_writable))
        if not base.get("directory"):
            return "", FAIL, trouble(base) or "an ordinary user can write to none of " + ", ".join(base["tried"])
        directory = f"{base['directory'].rstrip('/')}/{operations.PREFIX}{node.token}-{node.name}"

        def fill() -> Result:
            operations.make(directory)
            return operations.write(directory + "/file", node.name, 1)

        made = node.as_user(fill)
        if "digest" not in made:
            node.as_user(lambda: operations.remove([directory]))
            return "", FAIL, trouble(made)
        return directory, PASS, ""

    def _squash(self, directory: str) -> None:
        """Root tries what only root may: write into a directory of mode 0700, and give itself a user's file."""
        powers = [
            name
            for name, result in (
                ("write into a directory of mode 0700", self.node.attempt(lambda: _write_as_root(directory))),
                ("take a user's file (chown)", self.node.attempt(lambda: _chown_as_root(directory + "/file"))),
            )
            if result.get("done")
        ]
        if not powers:
            self.add_check(SQUASH, PASS, "nobody", "nobody", "root of this node could neither write nor chown there")
            return
        # deepopsctl manages the server where cluster.yml sets squash
        status = FAIL if self.entry.squash else WARN
        self.add_check(SQUASH, status, "root", "nobody", f"root of this node could {' and '.join(powers)}")


def _write_as_root(directory: str) -> Result:
    path = directory + "/of-root"
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    os.unlink(path)
    return {"done": True}


def _chown_as_root(path: str) -> Result:
    # in a directory that everybody may write to, another user may have put a link there
    os.chown(path, 0, 0, follow_symlinks=False)
    return {"done": True}


def _become(user: str, do: Callable[[], Result]) -> Result:
    entry = pwd.getpwnam(user)
    os.initgroups(user, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)
    os.environ["HOME"] = entry.pw_dir
    return do()
