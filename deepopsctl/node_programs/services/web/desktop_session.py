"""A desktop in a notebook's job: an X server that shows itself by VNC on a socket, a bus, and the user's session.

The sockets of VNC and of the bus are in a directory of the user's. X's own is where all X servers have theirs: it takes
who has the cookie. A user who listens in its place could type into the user's windows, so that place is verified.
"""

from __future__ import annotations

import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
from contextlib import suppress

SERVER, BUS = "Xvnc", "dbus-daemon"
SIZE = "1440x900"
PLACES = ("/tmp/.X11-unix", "/tmp/.ICE-unix")  # noqa: S108 (all X servers and sessions have theirs there)
# of a session that the job was submitted from
OTHERS = ("SESSION_MANAGER", "WAYLAND_DISPLAY")
PAUSE_S = 3.0


class DesktopError(Exception):
    """Why there is no desktop."""


def main() -> int:
    """Run the desktop until its session, or its X server, ends. The notebook starts it again."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    vnc, program = sys.argv[1:]
    try:
        run_session(vnc, program)
    except (DesktopError, OSError) as error:
        sys.stderr.write(f"error: desktop: {error}\n")
    # logging out makes a new session; one that can't start does not take all of a core
    time.sleep(PAUSE_S)
    return 1


def run_session(vnc: str, program: str) -> None:
    """One session. Raises DesktopError and OSError."""
    directory = os.path.dirname(vnc)
    for place in PLACES:
        verify_place(place, os.getuid())
    authority, bus = (os.path.join(directory, name) for name in ("desktop-cookie", "desktop-bus"))
    for path in (vnc, bus):
        with suppress(FileNotFoundError):
            os.unlink(path)
    with open(os.open(authority, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
        stream.write(cookie(os.urandom(16)))
    own = {name: value for name, value in os.environ.items() if name not in OTHERS}
    started: list[subprocess.Popen[bytes]] = []
    try:
        reader, writer = os.pipe()
        started.append(subprocess.Popen(server(vnc, authority, writer), pass_fds=[writer]))
        os.close(writer)
        display = number(reader)
        with hold(f"{PLACES[0]}/X{display}", os.getuid()):
            own.update(DISPLAY=f":{display}", XAUTHORITY=authority, DBUS_SESSION_BUS_ADDRESS=f"unix:path={bus}")
            address = f"--address=unix:path={bus}"
            started.append(subprocess.Popen([BUS, "--session", "--nofork", "--nopidfile", address], env=own))
            started.append(subprocess.Popen([program], env=own, cwd=os.path.expanduser("~")))
            while all(process.poll() is None for process in started):
                time.sleep(1)
    finally:
        for process in reversed(started):
            process.terminate()
            # a session whose display has gone leaves its socket
            with suppress(OSError):
                os.unlink(f"{PLACES[1]}/{process.pid}")


def server(vnc: str, authority: str, writer: int) -> list[str]:
    """The command of the X server, which writes its number to `writer`. It listens on no port."""
    words = ["-displayfd", str(writer), "-auth", authority, "-nolisten", "tcp", "-geometry", SIZE]
    return [SERVER, *words, "-SecurityTypes", "None", "-rfbunixpath", vnc, "-rfbunixmode", "0600", "-rfbport", "-1"]


def cookie(secret: bytes) -> bytes:
    """An .Xauthority for any display of any host."""
    wild, any_address, any_number = b"\xff\xff", b"", b""
    fields = (any_address, any_number, b"MIT-MAGIC-COOKIE-1", secret)
    return wild + b"".join(struct.pack(">H", len(field)) + field for field in fields)


def number(reader: int) -> int:
    """The display's number, once the server takes connections. Raises DesktopError."""
    with open(reader, encoding="ascii") as stream:
        text = stream.read()
    if not text.strip().isdigit():
        raise DesktopError("the X server did not start")
    return int(text)


def verify_place(path: str, uid: int) -> None:
    """No other user can move the sockets in it. Raises DesktopError."""
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid not in (0, uid):
        raise DesktopError(f"{path} belongs to another user (uid {status.st_uid}): ask the administrators")
    if status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
        raise DesktopError(f"{path} has no sticky bit: ask the administrators")


def hold(path: str, uid: int) -> socket.socket:
    """The display is this user's, also by its name without a file, which clients ask first. Raises DesktopError."""
    owner = os.lstat(path).st_uid
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # bound, and not listening: clients continue with the file, and no one else listens here
        holder.bind("\0" + path)
    except OSError:
        holder.connect("\0" + path)
        owner = owner if owner != uid else peer(holder)
    if owner != uid:
        holder.close()
        raise DesktopError(f"{path} is a display of another user (uid {owner})")
    return holder


def peer(connection: socket.socket) -> int:
    """The user who listens at the other end."""
    form = "3i"
    answer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(form))
    uid: int = struct.unpack(form, answer)[1]
    return uid


if __name__ == "__main__":
    sys.exit(main())
