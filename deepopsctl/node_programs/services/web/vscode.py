"""VS Code (code-server) in a notebook's job: an extension of its server, which JupyterLab shows as a tile.

It is started when its user first opens it, and listens on a socket in a directory of the user's. jupyter-server-proxy's
own extension is off: it makes a page of the user's of each port of the node, and another user may listen there, whose
page could then do all that this user can. For the same reason the proxy within code-server is off.
"""

from __future__ import annotations

import json
import os
from typing import Any

SETTINGS = "/etc/deepopsctl/web/notebook.json"
NAME, TITLE = "vscode", "VS Code"
# it reads its own files from the disk, which a busy file server may have
START_S = 60
_OPTIONS = (
    "--auth=none",
    "--disable-proxy",
    "--disable-telemetry",
    "--disable-update-check",
    "--socket-mode=600",
    "--socket={unix_socket}",
)


def command(program: str, home: str) -> list[str]:
    """What is started."""
    # the braces of a home's name would be a place for a value
    return [program, *_OPTIONS, home.replace("{", "{{").replace("}", "}}")]


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": __name__}]


def _load_jupyter_server_extension(server: Any) -> None:
    from jupyter_server.utils import url_path_join
    from jupyter_server_proxy.api import ServersInfoHandler
    from jupyter_server_proxy.config import ServerProcess, make_handlers

    with open(SETTINGS, encoding="utf-8") as stream:
        program = json.load(stream)["vscode"]
    base, processes = server.web_app.settings["base_url"], []
    if program:
        # of the notebook's user, and removed with the notebook
        directory = os.environ["JUPYTER_RUNTIME_DIR"]
        processes.append(
            ServerProcess(
                name=NAME,
                command=command(program, os.path.expanduser("~")),
                # for its other sockets: that of a login is not there in a job
                environment={"XDG_RUNTIME_DIR": directory},
                unix_socket=os.path.join(directory, NAME),
                timeout=START_S,
                launcher_entry={"title": TITLE},
            )
        )
    # JupyterLab asks for the list, also where it is empty
    listed = (url_path_join(base, "server-proxy/servers-info"), ServersInfoHandler, {"server_processes": processes})
    server.web_app.add_handlers(".*", [*make_handlers(base, processes), listed])
