"""As much of a browser as the pages need: cookies, forms, redirects, and a connection to a kernel."""

from __future__ import annotations

import base64
import http.cookiejar
import json
import os
import re
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from typing import Any

LIMIT_S = 60
_XSRF = re.compile(r'name="_xsrf" value="([^"]+)"|\?_xsrf=([^"&]+)')
_TEXT, _CLOSE = 1, 8


class PageError(Exception):
    """A page is not what it should be: address and what was answered."""


class Browser:
    """One browser, with its cookies."""

    def __init__(self, base: str, authority: str) -> None:
        self.base = base
        self._cookies = http.cookiejar.CookieJar()
        self._context = ssl.create_default_context()
        if os.path.exists(authority):
            self._context.load_verify_locations(authority)
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),
            urllib.request.HTTPCookieProcessor(self._cookies),
            urllib.request.HTTPSHandler(context=self._context),
        )

    def open(
        self,
        path: str,
        form: dict[str, str] | None = None,
        method: str = "",
        body: Any = None,
        file: tuple[str, str] | None = None,
    ) -> str:
        """A page, after all redirects; a form is posted, with its file; `body` is JSON. Raises PageError."""
        url = path if path.startswith("https://") else self.base + path
        headers = {"Referer": self.base + "/hub/home", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "same-origin"}
        data = None
        if form is not None:
            headers["Content-Type"], data = _form(form, file) if file else _plain_form(form)
        elif body is not None or method:
            data = json.dumps(body).encode() if body is not None else None
            headers = {"Content-Type": "application/json", "X-XSRFToken": self.cookie("_xsrf", url), "Referer": url}
        request = urllib.request.Request(url, data, headers, method=method or None)  # noqa: S310 (https, by its context)
        try:
            with self._opener.open(request, timeout=LIMIT_S) as response:
                text: str = response.read().decode("utf-8", "replace")
                return text
        except urllib.error.HTTPError as error:
            text = " ".join(re.sub(r"<[^>]+>", " ", error.read().decode("utf-8", "replace")).split())
            raise PageError(f"{urllib.parse.urlsplit(url).path} answers {error.code}: {text[-200:]}") from error
        except OSError as error:
            raise PageError(f"{url}: {error}") from error

    def cookie(self, name: str, url: str) -> str:
        """Its value for an address, of the longest path; '' without one."""
        path = urllib.parse.urlsplit(url).path
        matching = [each for each in self._cookies if each.name == name and path.startswith(each.path)]
        return max(matching, key=lambda each: len(each.path)).value or "" if matching else ""

    def execute(self, path: str, code: str, limit_s: float = LIMIT_S) -> str:
        """What a kernel prints for a cell; `path` is that of its channels. Raises PageError."""
        with _Channel(self, path) as channel:
            message = uuid.uuid4().hex
            channel.send(_execution(message, code))
            return _printed(channel, message, time.monotonic() + limit_s)

    def headers_for(self, path: str) -> str:
        """The cookies of a connection that is none of the opener's."""
        request = urllib.request.Request(self.base + path)  # noqa: S310 (the scheme is https)
        self._cookies.add_cookie_header(request)
        return request.get_header("Cookie") or ""

    def connect(self, limit_s: float) -> ssl.SSLSocket:
        """A connection to the pages."""
        parts = urllib.parse.urlsplit(self.base)
        raw = socket.create_connection((parts.hostname or "", parts.port or 443), limit_s)
        return self._context.wrap_socket(raw, server_hostname=parts.hostname)


def _plain_form(fields: dict[str, str]) -> tuple[str, bytes]:
    return "application/x-www-form-urlencoded", urllib.parse.urlencode(fields).encode()


def _form(fields: dict[str, str], file: tuple[str, str]) -> tuple[str, bytes]:
    """The type, and the body, of a form that has a file: its name and its text."""
    boundary = uuid.uuid4().hex
    name, text = file
    parts = [(f'name="{key}"', value) for key, value in fields.items()]
    parts.append((f'name="file"; filename="{name}"', text))
    lines = [f"--{boundary}\r\nContent-Disposition: form-data; {head}\r\n\r\n{value}\r\n" for head, value in parts]
    return f"multipart/form-data; boundary={boundary}", f"{''.join(lines)}--{boundary}--\r\n".encode()


def xsrf(page: str) -> str:
    """The word that a form of the page has to send. Raises PageError."""
    match = _XSRF.search(page)
    if match is None:
        raise PageError("the page has no form")
    return urllib.parse.unquote(match[1] or match[2])


def _execution(message: str, code: str) -> dict[str, Any]:
    header = {
        "msg_id": message, "msg_type": "execute_request", "username": "", "session": uuid.uuid4().hex, "version": "5.3",
        "date": "",
    }  # fmt: skip
    content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
    return {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}


def _printed(channel: _Channel, message: str, deadline: float) -> str:
    text = ""
    while time.monotonic() < deadline:
        answer = channel.receive()
        if answer.get("parent_header", {}).get("msg_id") != message:
            continue
        content, kind = answer["content"], answer["header"]["msg_type"]
        if kind == "stream":
            text += content["text"]
        elif kind == "error":
            raise PageError(f"the cell failed: {content['ename']}: {content['evalue'][:200]}")
        elif kind == "status" and content["execution_state"] == "idle":
            return text
    raise PageError("the kernel does not answer")


class _Channel:
    """A WebSocket (RFC 6455), for messages of text."""

    def __init__(self, browser: Browser, path: str) -> None:
        self._socket = browser.connect(LIMIT_S)
        host = urllib.parse.urlsplit(browser.base).netloc
        lines = [
            f"GET {path} HTTP/1.1", f"Host: {host}", "Upgrade: websocket", "Connection: Upgrade",
            "Sec-WebSocket-Key: " + base64.b64encode(os.urandom(16)).decode(), "Sec-WebSocket-Version: 13",
            f"Origin: {browser.base}", "Cookie: " + browser.headers_for(path), "", "",
        ]  # fmt: skip
        self._socket.sendall("\r\n".join(lines).encode())
        self._buffer = b""
        head = self._until(b"\r\n\r\n")
        if b" 101 " not in head.split(b"\r\n")[0]:
            raise PageError(f"{path}: {head.split(bytes((13, 10)))[0].decode('ascii', 'replace')}")

    def __enter__(self) -> _Channel:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, message: dict[str, Any]) -> None:
        """One message, in one frame."""
        data, mask = json.dumps(message).encode(), os.urandom(4)
        size = bytes([0x80 | 126]) + len(data).to_bytes(2, "big") if len(data) > 125 else bytes([0x80 | len(data)])
        masked = bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))
        self._socket.sendall(bytes([0x80 | _TEXT]) + size + mask + masked)

    def receive(self) -> dict[str, Any]:
        """The next message; {} for what is none."""
        text, last = b"", False
        while not last:
            first, second = self._take(2)
            last, kind, size = bool(first & 0x80), first & 0x0F, second & 0x7F
            if size > 125:
                size = int.from_bytes(self._take(2 if size == 126 else 8), "big")
            data = self._take(size)
            if kind == _CLOSE:
                raise PageError("the kernel's connection was closed")
            if kind > _CLOSE:
                return {}
            text += data
        message: dict[str, Any] = json.loads(text)
        return message

    def _take(self, count: int) -> bytes:
        while len(self._buffer) < count:
            self._more()
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._buffer:
            self._more()
        taken, _, self._buffer = self._buffer.partition(mark)
        return taken

    def _more(self) -> None:
        try:
            chunk = self._socket.recv(1 << 16)
        except OSError as error:
            raise PageError(f"the connection to the kernel: {error}") from error
        if not chunk:
            raise PageError("the connection to the kernel ended")
        self._buffer += chunk
