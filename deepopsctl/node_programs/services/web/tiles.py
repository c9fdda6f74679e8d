"""Tiles of JupyterLab for programs in a notebook's job, where the site has them: an extension of its server.

A program is started when its user first opens it, and listens on a socket in a directory of the user's.
jupyter-server-proxy's own extension is off: it makes a page of the user's of each port of the node, and another user
may listen there, whose page could then do all that this user can. For the same reason the proxy within code-server is
off.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

SETTINGS = "/etc/deepopsctl/web/notebook.json"
# they read their own files from the disk, which a busy file server may have
START_S = 60
# the viewer of jupyter-remote-desktop-proxy asks for these two
DESKTOP, DESKTOP_PAGE = "desktop-websockify", "desktop/"
_SESSION = os.path.join(os.path.dirname(os.path.abspath(__file__)), "desktop_session.py")
_CODE_SERVER = (
    "--auth=none",
    "--disable-proxy",
    "--disable-telemetry",
    "--disable-update-check",
    "--socket-mode=600",
    "--socket={unix_socket}",
)


def tiles(settings: dict[str, str], home: str) -> list[dict[str, Any]]:
    """What jupyter-server-proxy is to start; braces in a command are places for its values."""
    started: list[dict[str, Any]] = []
    if settings["vscode"]:
        command = [settings["vscode"], *_CODE_SERVER, home.replace("{", "{{").replace("}", "}}")]
        started.append({"name": "vscode", "command": command, "launcher_entry": {"title": "VS Code"}})
    if settings["desktop"]:
        command = [sys.executable, "-I", _SESSION, "{unix_socket}", settings["desktop"]]
        entry = {"title": "Desktop", "path_info": DESKTOP_PAGE}
        started.append({"name": DESKTOP, "command": command, "launcher_entry": entry, "raw_socket_proxy": True})
    return started


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": __name__}]


def _load_jupyter_server_extension(server: Any) -> None:
    from jupyter_remote_desktop_proxy.server_extension import load_jupyter_server_extension as load_desktop_page
    from jupyter_server.utils import url_path_join
    from jupyter_server_proxy.api import ServersInfoHandler
    from jupyter_server_proxy.config import ServerProcess, make_handlers

    with open(SETTINGS, encoding="utf-8") as stream:
        settings = json.load(stream)
    if settings["desktop"]:
        load_desktop_page(server)
    # of the notebook's user, and removed with the notebook
    directory = os.environ["JUPYTER_RUNTIME_DIR"]
    processes = [
        ServerProcess(
            unix_socket=os.path.join(directory, tile["name"]),
            # for its other sockets: that of a login is not there in a job
            environment={"XDG_RUNTIME_DIR": directory},
            timeout=START_S,
            **tile,
        )
        for tile in tiles(settings, os.path.expanduser("~"))
    ]
    base = server.web_app.settings["base_url"]
    # JupyterLab asks for the list, also where it is empty
    listed = (url_path_join(base, "server-proxy/servers-info"), ServersInfoHandler, {"server_processes": processes})
    server.web_app.add_handlers(".*", [*make_handlers(base, processes), listed])
