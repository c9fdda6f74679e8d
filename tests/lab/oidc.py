"""A real OpenID provider on a node of a lab: Authlib's server as the package oidc-provider-mock has it, with TLS.

It asks for no password: who is to be logged in is typed. Claims of a user named `nonce`, `iss` or `aud` take the place
of what the token would say; one named `forged` has the token signed by a key that the provider does not publish.
"""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from pathlib import Path
from typing import Self

from playwright.sync_api import Page, Response

from deepopsctl.cluster import secrets
from deepopsctl.cluster.directory import ClusterDir
from tests.lab.harness import PATIENCE_S, SETTINGS, LabCluster, edit, wait_until

PACKAGE = "oidc-provider-mock==0.3.4"
PORT = 9400
_PROGRAM = f"""\
import sys
sys.path.insert(0, "/opt/provider")
import flask
from authlib.jose import RSAKey
from oidc_provider_mock import _app
from werkzeug.serving import run_simple

stranger = RSAKey.generate_key(is_private=True)

class Code(_app.OpenIDCode):
    def encode_id_token(self, token, request):
        flask.g.forged = "forged" in request.user.claims
        return super().encode_id_token(token, request)

    def get_jwt_config(self, grant, client=None):
        config = super().get_jwt_config(grant, client)
        return {{**config, "key": stranger.as_dict(is_private=True)}} if flask.g.forged else config

_app.OpenIDCode = Code
certificate = sys.argv[1]
app = _app.app(require_nonce=True)
app.debug = False
run_simple("0.0.0.0", {PORT}, app.wsgi_app.app, ssl_context=(certificate, certificate), threaded=True)
"""


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A browser goes where it is sent; a test looks at it first."""

    def redirect_request(self, *_: object) -> None:
        """To nowhere."""


class Provider:
    """The one on a node with web pages: it listens with their certificate, which is in `directory`."""

    def __init__(self, cluster: LabCluster, node: str, directory: str = "/etc/deepopsctl/web") -> None:
        self._cluster, self._node, self._directory = cluster, node, directory
        self._address = cluster.root(node, "hostname -I").split()[0]

    def deploy(self, secret: str, **settings: object) -> None:
        """Deploy `web` with these settings and this provider, for the accounts alice and mallory without passwords."""
        directory = ClusterDir(self._cluster.directory)
        edit(directory.spec, "components: [slurm]", "components: [slurm, web]")
        settings |= {
            "web_oidc_issuer": f"https://{self._node}:{PORT}", "web_oidc_client_id": "hub",
            "web_oidc_name": "Example University","web_oidc_ca": f"{self._directory}/authority.crt",
        }  # fmt: skip
        with (self._cluster.directory / SETTINGS).open("a", encoding="utf-8") as stream:
            stream.writelines(f"{name}: {json.dumps(value)}\n" for name, value in settings.items())
        secrets.change(directory.secrets, directory.vault_password, {"web_oidc_client_secret": secret})
        users = "useradd -m -u 2001 -s /bin/bash alice; useradd -m -u 2002 -s /bin/bash mallory"
        self._cluster.root(self._node, users)
        self._cluster.deepopsctl("deploy")

    def start(self, directory: Path) -> Self:
        """Fetch its packages for the node's Python, copy and run it."""
        python = self._cluster.root(
            self._node, "python3 -c 'import sys; print(\"%d.%d\" % sys.version_info[:2])'"
        ).strip()
        machine = self._cluster.root(self._node, "uname -m").strip()
        argv = [
            sys.executable, "-m", "pip", "download", "-qq", "--disable-pip-version-check", "--only-binary=:all:",
            "--python-version", python, "--platform", f"manylinux2014_{machine}",
            "--platform", f"manylinux_2_28_{machine}", "--dest", str(directory / "wheels"), PACKAGE,
        ]  # fmt: skip
        subprocess.run(argv, check=True, timeout=PATIENCE_S)
        for wheel in (directory / "wheels").glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(directory / "provider")
        (directory / "provider" / "serve.py").write_text(_PROGRAM, encoding="utf-8")
        target = f"{self._cluster.name}-{self._node}:/opt/provider"
        subprocess.run(["podman", "cp", str(directory / "provider"), target], check=True, timeout=PATIENCE_S)
        start = "systemd-run --quiet --unit=provider python3 /opt/provider/serve.py"
        self._cluster.root(self._node, f"{start} {self._directory}/public.pem")
        wait_until("the provider answers", lambda: self._cluster.holds(self._node, f"ss -ltn | grep -q :{PORT}"))
        return self

    def knows(self, subject: str, **claims: object) -> None:
        """A user of the provider."""
        self._ask(f"/users/{subject}", json.dumps(claims).encode(), "PUT", "application/json")

    def sends_back(self, asked: str, subject: str) -> str:
        """The address to which a user's browser is sent from the page at `asked`."""
        form = urllib.parse.urlencode({"sub": subject}).encode()
        target = asked.partition(f":{PORT}")[2]
        return self._ask(target, form, "POST", "application/x-www-form-urlencoded")

    def _ask(self, target: str, data: bytes, method: str, kind: str) -> str:
        context = ssl.create_default_context()
        # the lab's own
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context), NoRedirect
        )
        url, headers = f"https://{self._address}:{PORT}{target}", {"Content-Type": kind}
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            with opener.open(request, timeout=30):
                return ""
        except urllib.error.HTTPError as error:
            if error.code != 302:
                raise
            return str(error.headers["Location"])


def authorize(page: Page, subject: str, answered: str) -> Response:
    """Log in as this user on the provider's page; what the first address answers then that has `answered`."""
    page.get_by_placeholder("sub").fill(subject)
    with page.expect_response(re.compile(answered)) as answer:
        page.get_by_role("button", name="Authorize").click()
    page.wait_for_load_state()
    return answer.value
