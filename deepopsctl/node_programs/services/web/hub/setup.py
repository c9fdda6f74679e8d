"""JupyterHub's configuration, from the settings of a deploy."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path
from typing import Any

from ...._shared import settings
from .. import CONFIG, RUN, offer
from .login import Login
from .proxy import HAProxy
from .spawner import Notebook

STATE = Path("/var/lib/deepops-web")
HERE = Path(CONFIG).parent
# pages of ours have neither scripts in them nor any of others
_POLICY = "frame-ancestors 'none'; base-uri 'self'; form-action 'self'; object-src 'none'"


def configure(c: Any, path: str = CONFIG) -> None:
    """Fill JupyterHub's own configuration object."""
    site = settings.load(path)
    key = _own_secret(STATE / "notebook_secret")
    c.JupyterHub.proxy_class = HAProxy
    c.HAProxy.should_start = False
    c.HAProxy.key = key
    c.JupyterHub.authenticator_class = Login
    c.Login.passwords = site["passwords"]
    c.Login.allow_all = True
    c.Login.public_url = site["url"]
    c.Login.notebook_key = key
    c.Login.site = site
    c.JupyterHub.spawner_class = Notebook
    c.Notebook.limits = offer.Limits(**site["limits"])
    c.Notebook.addresses = site["addresses"]
    c.Notebook.start_timeout = site["queue_minutes"] * 60
    # a node that is busy takes its time to load Python's modules
    c.Notebook.http_timeout = 240
    c.Notebook.poll_interval = 30
    c.Notebook.hub_connect_url = site["api_url"]
    _bind(c, site)
    c.JupyterHub.db_url = f"sqlite:///{STATE}/jupyterhub.sqlite"
    c.JupyterHub.cookie_secret_file = str(STATE / "cookie_secret")
    c.JupyterHub.cookie_max_age_days = site["session_days"]
    # a restart of JupyterHub, or of its proxy, ends no notebook
    c.JupyterHub.cleanup_servers = False
    c.JupyterHub.cleanup_proxy = False
    c.JupyterHub.concurrent_spawn_limit = 40
    c.JupyterHub.allow_named_servers = False
    # how soon a proxy that was restarted has all routes again
    c.JupyterHub.last_activity_interval = 30
    c.JupyterHub.template_paths = [str(HERE / "templates")]
    c.JupyterHub.template_vars = {
        "cluster_name": site["cluster"], "links": site["links"], "web_host": site["host"], "has_files": site["files"],
        "provider_name": site["oidc"].get("name", ""),
    }  # fmt: skip
    c.JupyterHub.tornado_settings = {
        "cookie_options": {"secure": True, "samesite": "Lax"},
        "headers": {"Content-Security-Policy": _POLICY, "X-Content-Type-Options": "nosniff"},
        # with these JupyterHub asks a notebook whether it is up
        "internal_ssl_key": str(HERE / "hub.key"),
        "internal_ssl_cert": str(HERE / "hub.crt"),
        "internal_ssl_ca": str(HERE / "notebooks.crt"),
    }
    c.Application.log_format = "%(levelname)s: %(message)s"


def _bind(c: Any, site: dict[str, Any]) -> None:
    socket = f"http+unix://{RUN.replace('/', '%2F')}%2Fhub.sock"
    c.JupyterHub.hub_bind_url = socket
    # the proxy's group
    c.JupyterHub.hub_socket_mode = 0o660
    c.JupyterHub.hub_connect_url = site["api_url"]
    c.JupyterHub.public_url = site["url"] + "/"
    c.JupyterHub.bind_url = site["url"] + "/"


def _own_secret(path: Path) -> bytes:
    """A secret that is made once."""
    if not path.exists():
        part = path.with_suffix(".new")
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, stat.S_IRUSR | stat.S_IWUSR), "wb") as stream:
            stream.write(secrets.token_bytes(32))
        part.replace(path)
    return path.read_bytes()
