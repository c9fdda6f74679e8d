"""Which programs JupyterLab has tiles for, and that none of them listens where another user may come."""

from __future__ import annotations

from typing import Any

from deepopsctl.node_programs.services.web.tiles import tiles

BOTH = {"vscode": "/usr/bin/code-server", "desktop": "startxfce4"}
SOCKET = "/tmp/notebook-x/socket"


def words(tile: dict[str, Any]) -> list[str]:
    # as jupyter-server-proxy does it
    return [word.format(unix_socket=SOCKET) for word in tile["command"]]


def test_without_the_settings_there_is_no_tile() -> None:
    assert tiles({"vscode": "", "desktop": ""}, "/home/alice") == []


def test_vscode_listens_on_a_socket_alone_and_opens_no_ports_of_the_node() -> None:
    (tile,) = tiles(BOTH | {"desktop": ""}, "/home/{a}")

    started = words(tile)
    assert (started[0], started[-1]) == ("/usr/bin/code-server", "/home/{a}")
    assert {f"--socket={SOCKET}", "--socket-mode=600", "--disable-proxy"} <= set(started)
    assert not [word for word in started if "bind-addr" in word or "port" in word]


def test_the_desktop_is_shown_by_its_own_page() -> None:
    (tile,) = tiles(BOTH | {"vscode": ""}, "/home/alice")

    assert words(tile)[-2:] == [SOCKET, "startxfce4"]
    # the connection is VNC's own, and no page
    assert tile["raw_socket_proxy"]
    assert tile["launcher_entry"] == {"title": "Desktop", "path_info": "desktop/"}
