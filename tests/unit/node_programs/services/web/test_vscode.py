"""How VS Code is started: on a socket, with none of its own ways in."""

from __future__ import annotations

from deepopsctl.node_programs.services.web.vscode import command


def test_it_listens_on_a_socket_alone_and_opens_no_ports_of_the_node() -> None:
    # as jupyter-server-proxy does it
    words = [word.format(unix_socket="/tmp/notebook-x/vscode") for word in command("/usr/bin/code-server", "/home/{a}")]

    assert (words[0], words[-1]) == ("/usr/bin/code-server", "/home/{a}")
    assert {"--socket=/tmp/notebook-x/vscode", "--socket-mode=600", "--disable-proxy"} <= set(words)
    assert not [word for word in words if "bind-addr" in word or "port" in word]
