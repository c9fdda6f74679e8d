"""VS Code in the job of a notebook: its user has it in the browser, and no other user by any way."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import suppress

import pytest
from playwright.sync_api import Browser, Page, TimeoutError as SlowError

from tests.lab.chromium import needs_chromium
from tests.lab.harness import PREFIX, LabCluster, fresh_cluster, wait_until
from tests.lab.web import deploy_pages, has_a_shell_in_its_job, logged_in, notebook, open_tile, status_of
from tests.support.code_server import PLACE, build, needs_npm

pytestmark = [needs_chromium, needs_npm]
HOST = "ctl1"
SOCKETS = "ss -Hlxp | grep -o '/[^ ]*'"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """One node that has the pages and runs jobs, with code-server, and two users."""
    archive = build(tmp_path_factory.mktemp("code-server") / "built")
    with fresh_cluster(f"{PREFIX}-vscode", tmp_path_factory, "--single") as made:
        made.root(HOST, f"mkdir {PLACE}")
        unpack = ["podman", "exec", "-i", f"{made.name}-{HOST}", "tar", "x", "--no-same-owner", "-C", str(PLACE)]
        with archive.open("rb") as stream:
            subprocess.run(unpack, stdin=stream, check=True)
        made.root(HOST, f"chmod -R go=u-w {PLACE}")
        deploy_pages(made, settings=f"web_vscode: {PLACE}/code-server\n")
        yield made


@pytest.fixture(scope="module")
def editor(cluster: LabCluster, browser: Browser) -> Iterator[Page]:
    """The window that the tile in JupyterLab opens for alice."""
    with notebook(cluster, browser, "alice") as page:
        window = open_tile(page, "alice", "VS Code")
        window.locator(".monaco-workbench .part.statusbar").wait_for()
        yield window


def test_its_terminal_is_in_the_job_of_its_user(cluster: LabCluster, editor: Page) -> None:
    for _ in range(10):
        editor.keyboard.press("Control+Shift+Backquote")
        with suppress(SlowError):
            editor.locator(".terminal .xterm-helper-textarea").last.wait_for(state="attached", timeout=15_000)
            break

    def enter(line: str) -> None:
        editor.locator(".terminal .xterm-helper-textarea").last.focus()
        editor.keyboard.insert_text(line)
        editor.keyboard.press("Enter")
        editor.wait_for_timeout(3000)

    has_a_shell_in_its_job(cluster, enter)


@pytest.mark.usefixtures("editor")
def test_no_one_else_has_it(cluster: LabCluster, browser: Browser) -> None:
    with logged_in(cluster, browser, "mallory") as page:
        for path in ("vscode/", "server-proxy/servers-info"):
            assert status_of(page, f"/user/alice/{path}") == 403, path
    # on the very node it listens on no port, and its sockets are for alice alone
    assert "node" not in cluster.root(HOST, "ss -Hltnup")
    sockets = [path for path in cluster.root(HOST, SOCKETS).split() if "vscode" in path or "code-server" in path]
    assert any(path.endswith("/vscode") for path in sockets), sockets
    for path in sockets:
        ask = f"curl -s -m 5 --unix-socket {path} http://localhost/healthz"
        assert cluster.holds(HOST, f"su - alice -c 'test -S {path}'"), path
        assert not cluster.holds(HOST, f"su - mallory -c '{ask}'"), path


def test_no_port_of_the_node_is_a_page_of_the_users(cluster: LabCluster, editor: Page) -> None:
    # what another user listens on there would be a page with all that alice can do
    cluster.root(HOST, "su - mallory -c 'mkdir -p hostile; cd hostile; nohup python3 -m http.server 9999 >log 2>&1 &'")
    wait_until("it listens", lambda: cluster.holds(HOST, "curl -sf http://127.0.0.1:9999/"), 30)
    try:
        for path in ("proxy/9999/", "proxy/localhost:9999/", "vscode/proxy/9999/", "vscode/absproxy/9999/"):
            page = editor.context.new_page()
            assert status_of(page, f"/user/alice/{path}") in (403, 404), path
            assert "Directory listing" not in page.inner_text("body")
            page.close()
    finally:
        cluster.root(HOST, "pkill -u mallory -f http.server")
