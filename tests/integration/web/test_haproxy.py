"""The web pages' proxy with its real configuration: who gets to a notebook, and who does not.

HAProxy is real, and so are the certificates; what answers behind it says who it is.
"""

from __future__ import annotations

import base64
import http.server
import shutil
import socket
import socketserver
import ssl
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import jinja2
import pytest
from ansible_collections.deepopsctl.cluster.plugins.filter.web import web_certificates

from deepopsctl.certificates.authority import new_authority
from deepopsctl.node_programs.services.web import routes
from deepopsctl.node_programs.services.web.hub import certificates
from deepopsctl.node_programs.services.web.routes import Route
from tests.support.cluster import wait_until
from tests.support.paths import ROOT

HAPROXY = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin")
pytestmark = pytest.mark.skipif(
    HAPROXY is None, reason="haproxy is not installed (scripts/install-tools-test installs it)"
)
KEY = b"of the site"


class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        text = f"{self.server.name} {self.path} {self.headers.get_all('X-Forwarded-For')}".encode()  # type: ignore[attr-defined]  # set below
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_POST = do_GET  # noqa: N815 (of the base)

    def log_message(self, *_: Any) -> None:
        """Tests say what went wrong."""


class OnSocket(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def get_request(self) -> tuple[Any, Any]:
        return super().get_request()[0], ("local", 0)


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class Site:
    """One proxy, JupyterHub's place, and two users' notebooks."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory, self._stack = directory, stack
        for file in web_certificates(new_authority(date.today()), "login1", "127.0.0.1", str(directory))["host"]:
            text = file.get("content") or base64.b64decode(file["secret_base64"]).decode()
            Path(file["path"]).write_text(text, encoding="ascii")
        self.port, self.api_port = free_port(), free_port()
        hub = OnSocket(str(directory / "hub.sock"), Answer)
        self._serve(hub, "hub")
        self.notebooks = {user: self._notebook(user) for user in ("alice", "mallory")}
        self._start()
        for user, port in self.notebooks.items():
            self.say(routes.add(self.route(user, port)))

    def _serve(self, server: Any, name: str) -> None:
        server.name = name
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self._stack.callback(server.shutdown)

    def _notebook(self, user: str) -> int:
        signed = certificates.sign(self.directory, routes.name_of(user), "127.0.0.1", timedelta(hours=1))
        for name, text in signed.items():
            (self.directory / f"{user}.{name}").write_text(text, encoding="ascii")
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.directory / f"{user}.authority"))
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(self.directory / f"{user}.certificate", self.directory / f"{user}.key")
        # the thread of a connection shakes hands: one that is refused does not stop the server
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        self._serve(server, user)
        return int(server.server_address[1])

    def _start(self) -> None:
        """With the configuration of the role, but for the places of a node."""
        source = (ROOT / "roles/web/templates/haproxy.cfg.j2").read_text(encoding="utf-8")
        text = jinja2.Environment(autoescape=False, keep_trailing_newline=True).from_string(source).render(  # noqa: S701 (a configuration)
            ansible_managed="", web_port=self.port, web_api_port=self.api_port, web_tls_certificate="",
            web_connections=200,
            **{"__web_config": str(self.directory)},  # noqa: PIE804 (a class renames such names)
        )  # fmt: skip
        for old, new in (
            ("/run/deepops-web-proxy", str(self.directory)), ("/run/deepops-web/", f"{self.directory}/"),
            (" user haproxy group haproxy", ""), ("    user haproxy\n    group haproxy\n", ""),
        ):  # fmt: skip
            assert old in text
            text = text.replace(old, new)
        (self.directory / "routes.map").write_text("# none\n", encoding="ascii")
        config = self.directory / "haproxy.cfg"
        config.write_text(text, encoding="utf-8")
        process = self._stack.enter_context(subprocess.Popen([HAPROXY or "", "-f", config, "-db"]))
        self._stack.callback(process.terminate)
        wait_until("HAProxy listens", (self.directory / "admin.sock").exists)

    def say(self, words: str) -> str:
        """To HAProxy, as JupyterHub does."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.directory / "admin.sock"))
            connection.sendall(words.replace(routes.TABLE, str(self.directory / "routes.map")).encode() + b"\n")
            with connection.makefile("r") as stream:
                return stream.read()

    @staticmethod
    def route(user: str, port: int) -> Route:
        """Of a user's notebook."""
        return Route(f"/user/{user}/", "127.0.0.1", port, routes.name_of(user), routes.secret_of(user, KEY))

    def get(
        self,
        path: str,
        cookie_of: str = "",
        port: int = 0,
        data: bytes | None = None,
        headers: dict[str, str] | None = None,
        patience_s: float = 20,
    ) -> tuple[int, str]:
        """(status, text or address of a redirect)."""
        authority = "notebooks.crt" if port == self.api_port else "authority.crt"
        context = ssl.create_default_context(cafile=str(self.directory / authority))
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context), NoRedirect
        )
        headers = dict(headers or {})
        if cookie_of:
            headers["Cookie"] = f"other=x; {routes.COOKIE}={routes.secret_of(cookie_of, KEY)}"
        request = urllib.request.Request(f"https://127.0.0.1:{port or self.port}{path}", data, headers)
        try:
            with opener.open(request, timeout=patience_s) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers.get("Location", "")

    def knock(self, context: ssl.SSLContext) -> bytes:
        """What alice's notebook answers without the proxy; nothing where it refuses."""
        with (
            suppress(OSError),
            socket.create_connection(("127.0.0.1", self.notebooks["alice"]), 10) as raw,
            context.wrap_socket(raw) as connection,
        ):
            connection.sendall(b"GET /api HTTP/1.0\r\n\r\n")
            return connection.recv(100)
        return b""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(tmp_path_factory.mktemp("web"), stack)


def test_a_browser_gets_to_its_owners_notebook(site: Site) -> None:
    assert site.get("/user/alice/lab?x=1", "alice") == (200, "alice /user/alice/lab?x=1 ['127.0.0.1']")
    assert site.get("/user/mallory/lab", "mallory")[1].startswith("mallory ")


@pytest.mark.parametrize("cookie_of", ["", "mallory"])
def test_another_browser_is_sent_to_jupyterhub_and_the_notebook_says_nothing_to_it(site: Site, cookie_of: str) -> None:
    assert site.get("/user/alice/lab?x=1", cookie_of) == (302, "/hub/notebook?next=%2Fuser%2Falice%2Flab%3Fx%3D1")


def test_a_notebook_that_is_busy_is_waited_for(site: Site) -> None:
    # it was given up after 20 seconds
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        site.say(routes.add(site.route("busy", listener.getsockname()[1])))
        try:
            with pytest.raises(TimeoutError):
                site.get("/user/busy/lab", "busy", patience_s=25)
        finally:
            site.say(routes.remove("/user/busy/"))


@pytest.mark.parametrize("headers", [{"Upgrade": "websocket"}, {}])
def test_nothing_but_pages_is_sent_on(site: Site, headers: dict[str, str]) -> None:
    assert site.get("/user/alice/api", "mallory", data=None if headers else b"x", headers=headers)[0] == 403


def test_a_program_with_a_token_gets_to_the_notebook_which_knows_tokens(site: Site) -> None:
    assert site.get("/user/alice/api", headers={"Authorization": "token x"})[1].startswith("alice ")


def test_who_has_taken_a_notebooks_port_gets_no_request(site: Site) -> None:
    site.say(routes.add(site.route("alice", site.notebooks["mallory"])))
    try:
        assert site.get("/user/alice/lab", "alice")[0] == 503
    finally:
        site.say(routes.add(site.route("alice", site.notebooks["alice"])))


def test_a_notebook_is_closed_to_all_but_the_proxy(site: Site) -> None:
    for certificate in ("", "mallory"):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if certificate:
            context.load_cert_chain(site.directory / "mallory.certificate", site.directory / "mallory.key")
        assert not site.knock(context)


def test_a_notebook_that_was_removed_is_jupyterhubs_again(site: Site) -> None:
    site.say(routes.remove("/user/alice/"))
    try:
        assert set(routes.read(site.say(routes.SHOW))) == {"/user/mallory/"}
        assert site.get("/user/alice/lab", "alice")[1].startswith("hub ")
    finally:
        site.say(routes.add(site.route("alice", site.notebooks["alice"])))


def test_no_browser_chooses_its_address(site: Site) -> None:
    assert site.get("/hub/home", headers={"X-Forwarded-For": "192.0.2.1"}) == (200, "hub /hub/home ['127.0.0.1']")


def test_the_port_for_notebooks_has_nothing_but_the_interface(site: Site) -> None:
    assert site.get("/hub/api", port=site.api_port)[0] == 200
    assert [site.get(path, "alice", port=site.api_port)[0] for path in ("/hub/login", "/user/alice/")] == [404, 404]


def test_logins_of_one_address_are_counted(site: Site) -> None:
    answers = [site.get("/hub/login", data=b"x")[0] for _ in range(25)]

    assert answers == [200] * 20 + [429] * 5
    # who looks at a page is none of them
    assert site.get("/hub/login")[0] == 200
