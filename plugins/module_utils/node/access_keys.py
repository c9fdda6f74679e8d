"""Root's own file of the keys by which the deploying user logs in, the only one that sshd then reads for that user.

`ssh setup` sends this file to nodes by itself, so it needs the standard library alone. Why the keys are there:
docs/develop/decisions/keys-of-root.md.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shlex
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Callable, NamedTuple

DIRECTORY = "/etc/ssh/deepopsctl/access"
# the first controller's own key for logins to the nodes
OWN_KEYS = "/etc/ssh/deepopsctl/login"
# those of people.yml, should that user be in it
PEOPLE = "/etc/ssh/deepopsctl/keys"
CONFIG = "/etc/ssh/sshd_config.d/30-deepopsctl-access.conf"
MAIN_CONFIG = "/etc/ssh/sshd_config"
HEADER = "# Managed by deepopsctl: changes made here are lost at the next deploy.\n"
KEYS_HEADER = "# Keys of {user} for this node: sshd reads them, not ~/.ssh/authorized_keys. Lines added here stay.\n"
PROBE = ".probe"
NETWORKED = re.compile(
    r"nfs4?|cifs|smb3|afs|9p|virtiofs|lustre|beegfs|ceph|gpfs|gfs2|ocfs2|fuse\.(ceph|glusterfs|sshfs|juicefs).*"
)
_PLACES = ".ssh/authorized_keys .ssh/authorized_keys2"
_INCLUDE = re.compile(r"^\s*include\s+/etc/ssh/sshd_config\.d/\*\.conf", re.MULTILINE | re.IGNORECASE)
_KEY = re.compile(r"(?:^|\s)((?:sk-)?(?:ssh|ecdsa)-[a-z0-9@.-]+)\s+([A-Za-z0-9+/]{40,}={0,2})(?:\s|$)")
# what `ssh setup` writes before the controller's key; a line with other options is an administrator's own
_FROM = re.compile(r'from="[^" ]*" ')
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*\$?")
# more than this is not a file of keys
_MOST_BYTES = 1 << 20
_LIMIT_S = 60
_RELOAD_S = 10.0
# the state of a socket in /proc/net/tcp
_LISTENS = "0A"
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class AccessError(Exception):
    """Why the keys stay where they are; nothing was changed."""


class Outcome(NamedTuple):
    """What was changed, or would be; `adopted` are the keys taken over from the user's home."""

    changed: list[str]
    adopted: list[str]


def ensure(user: str, keys: Sequence[str] = (), *, dry: bool = False) -> Outcome:
    """Root's file has these keys and those that sshd has accepted so far; sshd reads it alone. Raises AccessError.

    It is first tried by a login through an sshd of its own, so that no user is locked out.
    """
    account = _account(user)
    if account.pw_uid == 0:
        return Outcome([], [])
    path = os.path.join(DIRECTORY, user)
    present = _lines(path)
    adopted = [] if present is not None else own_keys(account)
    wanted = merged(present if present is not None else [KEYS_HEADER.format(user=user).rstrip(), *adopted], keys)
    changed = [path] if wanted != present else []
    config = sshd_block([*_users(), user])
    if _read(CONFIG) != config:
        changed.append(CONFIG)
        _check_include()
    if dry or not changed:
        return Outcome(changed, adopted)
    for directory in (os.path.dirname(DIRECTORY), DIRECTORY):
        _make_directory(directory)
    if CONFIG in changed:
        problem = _probe(user)
        if problem:
            raise AccessError(f"sshd would not accept root's file of keys for {user}: {problem}")
    _write(path, "".join(f"{line}\n" for line in wanted))
    if CONFIG in changed:
        _put_in_force(user, config)
    return Outcome(changed, adopted)


def sshd_block(users: Sequence[str]) -> str:
    """sshd's configuration; a Match block ends with its file."""
    names = ",".join(sorted(dict.fromkeys(users)))
    # ~/.ssh/rc would run what any user who can write to the home has put there
    return f"{HEADER}Match User {names}\n    AuthorizedKeysFile {DIRECTORY}/%u {PEOPLE}/%u\n    PermitUserRC no\n"


def in_force(user: str) -> bool:
    """Whether sshd reads root's file for this user, and no file in the home."""
    places = accepted_places(user)
    return f"{DIRECTORY}/%u" in places and all(place.startswith("/etc/ssh/") for place in places)


def accepted_places(user: str) -> list[str]:
    """Where sshd looks for this user's keys, as its configuration has it."""
    lines = [line.split()[1:] for line in _configuration(user) if line.startswith("authorizedkeysfile ")]
    return [place for line in lines for place in line]


def _configuration(user: str) -> list[str]:
    return _run(["sshd", "-T", "-C", f"user={user},host=localhost,addr=127.0.0.1"]).stdout.splitlines()


def own_keys(account: pwd.struct_passwd) -> list[str]:
    """Keys that sshd accepts for an account today, read in its name: its home may be closed to root, and hostile."""
    words = {"%u": account.pw_name, "%h": account.pw_dir, "%U": str(account.pw_uid), "%%": "%"}
    lines: list[str] = []
    for place in accepted_places(account.pw_name) or _PLACES.split():
        filled = re.sub("%[uhU%]", lambda match: words[match[0]], place)
        path = os.path.join(account.pw_dir, filled)
        if not path.startswith(PEOPLE + "/"):
            lines += [line.strip() for line in _text_as(account, path).splitlines() if blob_of(line)]
    return list(dict.fromkeys(lines))


def merged(lines: Sequence[str], keys: Sequence[str]) -> list[str]:
    """The lines with these keys: one that is there stays as it is, unless only its addresses (from=) are others."""
    result = list(lines)
    for key in keys:
        same = [line for line in result if blob_of(line) == blob_of(key)]
        managed = [line for line in same if _FROM.sub("", line).startswith(("ssh-", "ecdsa-", "sk-"))]
        if not same:
            # an earlier key of the same controller, by the comment that `ssh setup` gives it
            result = [line for line in result if not _is_former(line, key)] + [key]
        elif _FROM.match(key) and managed and managed != [key]:
            at = result.index(managed[0])
            result = [line for line in result[:at] if line not in managed] + [key] + [
                line for line in result[at + 1 :] if line not in managed
            ]  # fmt: skip
    return result


def blob_of(line: str) -> str:
    """The key of a line of authorized_keys; '' for a comment and anything else."""
    match = None if line.lstrip().startswith("#") else _KEY.search(line)
    return match[2] if match else ""


def comment_of(line: str) -> str:
    """What stands after the key."""
    return line.partition(blob_of(line))[2].strip() if blob_of(line) else ""


def file_system_of(path: str, table: str = "/proc/self/mountinfo") -> tuple[str, str]:
    """(mount point, type) of what a path is on; the type is '' where the kernel does not say."""
    real, best = os.path.realpath(path), ("", "")
    for line in (_read(table) or "").split("\n"):
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        if len(fields) < 6:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4])
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        # what was mounted later is on top; automount's trigger says nothing about what follows it
        if inside and len(point) >= len(best[0]) and right.split(" ")[0] != "autofs":
            best = (point, right.split(" ")[0])
    return best


def networked_home(user: str) -> str:
    """`HOME (TYPE at MOUNT POINT)` where the user's home is on a file server; '' where it is on this node."""
    try:
        home = pwd.getpwnam(user).pw_dir
    except KeyError:
        return ""
    point, kind = file_system_of(home)
    return f"{home} ({kind} at {point})" if NETWORKED.fullmatch(kind) else ""


def ensure_own_key(user: str, name: str, comment: str) -> tuple[str, str, bool]:
    """(private key, public line, whether it is new) of a controller's key in root's directory.

    One that lies in the user's home is moved; a new one is made where others could read that home.
    """
    account = _account(user)
    private = os.path.join(OWN_KEYS, name)
    public = _read(private + ".pub")
    if public and os.path.exists(private):
        return private, public.strip(), False
    for directory in (os.path.dirname(OWN_KEYS), OWN_KEYS):
        _make_directory(directory)
    old = os.path.join(account.pw_dir, ".ssh", name)
    moved = "" if networked_home(user) else _text_as(account, old)
    with tempfile.TemporaryDirectory(dir=OWN_KEYS, prefix=".new-") as scratch:
        fresh = os.path.join(scratch, name)
        if "PRIVATE KEY" in moved:
            _write(fresh, moved, 0o600)
        else:
            _new_key(fresh, comment)
        line = _require(["ssh-keygen", "-y", "-P", "", "-f", fresh], f"{old} can't be read").strip()
        public = " ".join([*line.split()[:2], comment])
        _write(private + ".pub", public + "\n")
        os.chmod(fresh, 0o400)
        os.chown(fresh, account.pw_uid, account.pw_gid)
        os.rename(fresh, private)
    _as(account, lambda: _remove(old, old + ".pub"))
    return private, public, True


def _new_key(path: str, comment: str) -> None:
    _require(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path], "no key could be made")


def _remove(*paths: str) -> str:
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    return ""


def _is_former(line: str, key: str) -> bool:
    comment = comment_of(key)
    return "(deepopsctl cluster " in comment and comment_of(line) == comment and bool(_FROM.match(line))


def _account(user: str) -> pwd.struct_passwd:
    if not _NAME.fullmatch(user):
        raise AccessError(f"{user!r} can't be in sshd's configuration")
    try:
        return pwd.getpwnam(user)
    except KeyError:
        raise AccessError(f"there is no user {user}") from None


def _users() -> list[str]:
    """Everybody who has such a file: earlier users of the cluster stay as they are."""
    with contextlib.suppress(OSError):
        return [name for name in sorted(os.listdir(DIRECTORY)) if _NAME.fullmatch(name) and not name.endswith(PROBE)]
    return []


def _check_include() -> None:
    if not _INCLUDE.search(_read(MAIN_CONFIG) or ""):
        raise AccessError(f"{MAIN_CONFIG} does not include /etc/ssh/sshd_config.d/*.conf: add the distribution's line")


def _probe(user: str) -> str:
    """Why a login by a key in root's directory fails, '' where it works: tried with an sshd that serves one login."""
    probe = os.path.join(DIRECTORY, user + PROBE)
    with tempfile.TemporaryDirectory(prefix="deepopsctl-sshd-") as scratch:
        key, config = os.path.join(scratch, "key"), os.path.join(scratch, "sshd_config")
        _new_key(key, "probe")
        block = sshd_block([user]).replace(f"{DIRECTORY}/%u", f"{DIRECTORY}/%u{PROBE}")
        # first what is there: a block of the site's for this user wins here as it will in force
        _write(config, f"Include {MAIN_CONFIG}\n{block}")
        program = _which("sshd")
        options = [
            "BatchMode=yes", "IdentitiesOnly=yes", f"IdentityFile={key}", "PreferredAuthentications=publickey",
            "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "GlobalKnownHostsFile=/dev/null",
            "LogLevel=ERROR", f"ProxyCommand={shlex.quote(program)} -i -f {shlex.quote(config)}",
        ]  # fmt: skip
        words = [word for option in options for word in ("-o", option)]
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
        try:
            _write(probe, f'restrict,command="true" {_read(key + ".pub")}')
            done = _run(["ssh", "-F", "/dev/null", "-T", *words, "-l", user, "--", "localhost", "true"])
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(probe)
    return "" if done.returncode == 0 else _last_line(done.stderr) or f"ssh ends with {done.returncode}"


def _put_in_force(user: str, config: str) -> None:
    """The block, and sshd with it; what was there before, where that fails."""
    before = _read(CONFIG)
    _write(CONFIG, config)
    checked = _run(["sshd", "-t"])
    problem = "" if checked.returncode == 0 else _last_line(checked.stderr) or "sshd refuses it"
    if not problem and not in_force(user):
        problem = f"another setting of sshd decides where it looks: {' '.join(accepted_places(user))}"
    if problem:
        if before is None:
            os.unlink(CONFIG)
        else:
            _write(CONFIG, before)
        raise AccessError(f"{CONFIG}: {problem}")
    for unit in ("ssh.service", "sshd.service"):
        # one that is started for each connection reads its files by itself
        if _run(["systemctl", "is-active", "--quiet", unit]).returncode == 0:
            before_it = listening_sockets(user)
            _require(["systemctl", "reload", unit], f"{unit} could not be reloaded")
            _wait_for_new_sockets(user, before_it)
            break


def listening_sockets(user: str, tables: Sequence[str] = ("/proc/net/tcp", "/proc/net/tcp6")) -> set[str]:
    """The kernel's numbers of the sockets that listen at sshd's ports."""
    ports = {line.split()[1] for line in _configuration(user) if line.startswith("port ")}
    rows = [line.split() for table in tables for line in (_read(table) or "").splitlines()[1:]]
    return {row[9] for row in rows if row[3] == _LISTENS and str(int(row[1].rpartition(":")[2], 16)) in ports}


def _wait_for_new_sockets(user: str, before: set[str]) -> None:
    """A reload makes sshd start itself again: until it listens again, it refuses logins.

    The sockets stay the same where systemd has made them: then the wait ends by itself.
    """
    until = time.monotonic() + _RELOAD_S
    while time.monotonic() < until:
        sockets = listening_sockets(user)
        if sockets and not sockets & before:
            return
        time.sleep(0.1)


def _text_as(account: pwd.struct_passwd, path: str) -> str:
    """A regular file as its owner reads it; '' where there is none."""

    def text() -> str:
        # a pipe in its place must not block
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return ""
            return stream.read(_MOST_BYTES).decode("utf-8", "replace")

    return _as(account, text)


def _as(account: pwd.struct_passwd, work: Callable[[], str]) -> str:
    """The text that a function returns in a process of the account's; '' where it fails."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.close(reader)
            os.initgroups(account.pw_name, account.pw_gid)
            os.setgid(account.pw_gid)
            os.setuid(account.pw_uid)
            text = work()
            with open(writer, "wb") as stream:
                stream.write(text.encode("utf-8"))
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as stream:
        answer = stream.read()
    os.waitpid(child, 0)
    return answer.decode("utf-8", "replace")


def _lines(path: str) -> list[str] | None:
    text = _read(path)
    return None if text is None else text.splitlines()


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as stream:
            return stream.read()
    except FileNotFoundError:
        return None


def _make_directory(path: str) -> None:
    os.makedirs(path, mode=0o755, exist_ok=True)
    os.chown(path, 0, 0)
    os.chmod(path, 0o755)  # noqa: S103 - sshd reads it in the name of others


def _write(path: str, text: str, mode: int = 0o644) -> None:
    """Replace a file at once."""
    descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".deepopsctl-")
    with open(descriptor, "w", encoding="utf-8", errors="surrogateescape") as stream:
        stream.write(text)
        stream.flush()
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    os.rename(temporary, path)


def _which(program: str) -> str:
    return next(
        (p for p in (os.path.join(d, program) for d in _SYSTEM_PATH.split(":")) if os.access(p, os.X_OK)), program
    )


def _run(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": _SYSTEM_PATH, "LC_ALL": "C.UTF-8"}
    try:
        return subprocess.run(
            [_which(argv[0]), *argv[1:]], stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors=(
                "replace"
            ), check=False, timeout=_LIMIT_S, env=environment,
        )  # fmt: skip
    except FileNotFoundError:
        return subprocess.CompletedProcess(list(argv), 127, "", f"{argv[0]} is not installed")
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(list(argv), 124, "", f"{argv[0]}: no answer within {_LIMIT_S} s")


def _require(argv: Sequence[str], what: str) -> str:
    done = _run(argv)
    if done.returncode != 0:
        raise AccessError(f"{what}: {_last_line(done.stderr)}")
    return done.stdout


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def main(arguments: Sequence[str], keys: Sequence[str]) -> Iterator[str]:
    """Report lines for `ssh setup`: USER, and name and comment of a controller's own key; keys to install."""
    user, name, comment = arguments
    wanted = [key for key in keys if blob_of(key)]
    try:
        if name:
            private, public, new = ensure_own_key(user, name, comment)
            addresses = os.environ.get("DEEPOPSCTL_ADDRESSES", "")
            # a user who gets hold of this key can use it from here alone
            public = f'from="{addresses}" {public}'
            wanted.append(public)
            yield from ["changed controller-key"] if new else []
            yield f"public {public}"
            yield f"identity {private}"
        outcome = ensure(user, wanted)
    except (AccessError, OSError) as error:
        yield f"kept {error}"
        return
    if outcome.changed:
        yield "changed key"
    if outcome.adopted:
        yield f"adopted {len(outcome.adopted)}"
    yield "installed root"


if __name__ == "__main__":
    for report in main(sys.argv[1:4], sys.stdin.read().splitlines()):
        sys.stdout.write(f"@deepopsctl {report}\n")
