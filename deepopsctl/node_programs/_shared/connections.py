"""Bounds of a listener: how many connections each client has, and all of them; and a log that clients can't fill."""

from __future__ import annotations

import errno
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Hashable
from contextlib import suppress
from typing import Any, Callable

# what accept() may meet without an end of the listener: no descriptors or memory left, a client that left already
SHORTAGES = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
PASSING = SHORTAGES | {errno.ECONNABORTED, errno.EPERM, errno.EPROTO, errno.ENETDOWN, errno.EHOSTUNREACH}
PAUSE_S = 0.05
LOG_S = 60.0
_MOST_LINES = 50
_OTHERS = "further clients were refused"

Close = Callable[[], object]


class Connections:
    """Open connections, by client. The oldest is closed for a new one, of the same client or of the one with most.

    A listener that refused new connections instead could be occupied by silent ones.
    """

    def __init__(self, of_one: int, in_all: int) -> None:
        self.of_one, self.in_all = of_one, in_all
        self._clients: dict[str, dict[Hashable, Close]] = {}
        self._client_of: dict[Hashable, str] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._client_of)

    def add(self, client: str, key: Hashable, close: Close) -> str:
        """One more; returns whose connection was closed for it, '' if none was."""
        with self._lock:
            crowd = client if len(self._clients.get(client, ())) >= self.of_one else ""
            if not crowd and len(self._client_of) >= self.in_all:
                crowd = self._largest()
            dropped = self._drop_oldest(crowd) if crowd else None
            self._clients.setdefault(client, {})[key] = close
            self._client_of[key] = client
        if dropped:
            dropped()
        return crowd

    def remove(self, key: Hashable) -> None:
        """It has ended; nothing for one that was closed already."""
        with self._lock:
            self._forget(key)

    def close_oldest(self) -> str:
        """Make room: whose connection was closed, '' where there is none."""
        with self._lock:
            crowd = self._largest()
            dropped = self._drop_oldest(crowd) if crowd else None
        if dropped:
            dropped()
        return crowd

    def _largest(self) -> str:
        return max(self._clients, key=lambda client: len(self._clients[client]), default="")

    def _drop_oldest(self, client: str) -> Close:
        key, close = next(iter(self._clients[client].items()))
        self._forget(key)
        return close

    def _forget(self, key: Hashable) -> None:
        client = self._client_of.pop(key, None)
        if client is not None:
            del self._clients[client][key]
            if not self._clients[client]:
                del self._clients[client]


class Log:
    """Lines on stderr, each once a minute: what comes more often is counted."""

    def __init__(self, write: Callable[[str], object] | None = None) -> None:
        self._write = write or _to_stderr
        # when a line was written last, and how often it came since
        self._lines: dict[str, tuple[float, int]] = {}
        self._lock = threading.Lock()

    def __call__(self, text: str) -> None:
        """One line."""
        with self._lock:
            line = self._line(text, time.monotonic())
        if line:
            self._write(line)

    def _line(self, text: str, now: float) -> str:
        if text not in self._lines and len(self._lines) >= _MOST_LINES:
            self._lines = {each: (since, more) for each, (since, more) in self._lines.items() if now - since < LOG_S}
            text = text if len(self._lines) < _MOST_LINES else _OTHERS
        since, more = self._lines.get(text, (None, 0))
        if since is not None and now - since < LOG_S:
            self._lines[text] = (since, more + 1)
            return ""
        self._lines[text] = (now, 0)
        return f"{text} (and {more:,} times in the {now - since:.0f} s before)" if since and more else text


class BoundedServer(socketserver.ThreadingMixIn):
    """For a server of `socketserver`: a thread for each connection, and no more of these than `connections` has."""

    daemon_threads = True
    request_queue_size = 128
    connections: Connections
    log: Log

    def get_request(self) -> tuple[socket.socket, Any]:
        """The next connection; one that can't be accepted is left to the next try."""
        try:
            return super().get_request()  # type: ignore[misc,no-any-return]  # of the server it is mixed into
        except OSError as error:
            if error.errno in SHORTAGES:
                crowd = self.connections.close_oldest() or "no client"
                self.log(f"{error.strerror}: the oldest connection of {crowd} was closed")
            # the caller tries again at once
            time.sleep(PAUSE_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread; the oldest connection may have to end for it."""
        self.track(request, id(request), client_address)
        super().process_request(request, client_address)

    def track(self, connection: socket.socket, key: int, client_address: Any) -> None:
        """A connection that is ended for newer ones; TLS has a socket of its own for it."""

        def end() -> None:
            with suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)

        crowd = self.connections.add(str(client_address[0]), key, end)
        if crowd:
            self.log(f"{crowd} has too many connections: its oldest was closed")

    def shutdown_request(self, request: Any) -> None:
        """It is answered, or given up."""
        self.connections.remove(id(request))
        super().shutdown_request(request)  # type: ignore[misc]  # of the server it is mixed into

    def handle_error(self, _request: Any, client_address: Any) -> None:
        """One line, where the base has a traceback."""
        self.log(f"{client_address[0]} was refused: {sys.exc_info()[1]}")


def _to_stderr(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
