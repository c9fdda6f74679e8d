"""A desktop in the job of a notebook: its user has it in the browser, and no other user; it ends with the job."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.lab.chromium import needs_chromium
from tests.lab.harness import PREFIX, LabCluster, fresh_cluster, wait_until
from tests.lab.web import deploy_pages, has_a_shell_in_its_job, logged_in, notebook, open_tile, status_of, stop_notebook

pytestmark = needs_chromium
HOST = "ctl1"
# of how many pixels in a hundred of the screen's
COLOURS = """() => {
  const canvas = document.querySelector('#screen canvas'), seen = new Set();
  const all = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  for (let at = 0; at < all.length; at += 400) seen.add((all[at] << 16) + (all[at + 1] << 8) + all[at + 2]);
  return seen.size;
}"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """One node that has the pages and runs jobs, with a desktop, and two users."""
    with fresh_cluster(f"{PREFIX}-desktop", tmp_path_factory, "--single") as made:
        deploy_pages(made, settings="web_desktop: xfce\n")
        yield made


@pytest.fixture(scope="module")
def lab(cluster: LabCluster, browser: Browser) -> Iterator[Page]:
    """JupyterLab of alice's notebook."""
    with notebook(cluster, browser, "alice") as page:
        yield page


@pytest.fixture(scope="module")
def desktop(lab: Page) -> Page:
    """The window that the tile opens for alice, once something is drawn in it."""
    window = open_tile(lab, "alice", "Desktop")
    window.get_by_text("Connected", exact=True).wait_for()
    wait_until("the desktop is drawn", lambda: window.evaluate(COLOURS) > 50, 120)
    return window


def test_a_window_of_it_runs_in_the_job_of_its_user(cluster: LabCluster, desktop: Page) -> None:
    def enter(line: str) -> None:
        desktop.locator("#screen canvas").focus()
        desktop.keyboard.press("Control+Alt+t")
        desktop.wait_for_timeout(5000)
        desktop.keyboard.type(line, delay=20)
        desktop.keyboard.press("Enter")
        desktop.wait_for_timeout(3000)

    has_a_shell_in_its_job(cluster, enter)


@pytest.mark.usefixtures("desktop")
def test_no_one_else_has_it(cluster: LabCluster, browser: Browser) -> None:
    with logged_in(cluster, browser, "mallory") as page:
        for path in ("desktop/", "desktop-websockify/"):
            assert status_of(page, f"/user/alice/{path}") == 403, path
    # on the very node: it listens on no port, and another user opens none of its sockets
    listening = cluster.root(HOST, "ss -Hltnup")
    assert not [name for name in ("vnc", "xfce", "dbus-daemon", "desktop") if name in listening], listening
    (directory,) = cluster.root(HOST, "ls -d /tmp/notebook-*").split()
    for name in ("desktop-websockify", "desktop-bus"):
        ask = f"curl -s -m 5 --unix-socket {directory}/{name} http://localhost/"
        assert cluster.holds(HOST, f"su - alice -c 'test -S {directory}/{name}'"), name
        assert cluster.root(HOST, f"su - mallory -c '{ask}; echo =$?'", ok=False).endswith("=7"), name
    # X asks for the cookie, by its file and by the name without one
    (display,) = cluster.root(HOST, "ls /tmp/.X11-unix").split()
    asked = f"DISPLAY=:{display.removeprefix('X')} XAUTHORITY={directory}/desktop-cookie xset q"
    assert cluster.holds(HOST, f"su - alice -c '{asked}'")
    assert not cluster.holds(HOST, f"su - mallory -c '{asked}'")


@pytest.mark.usefixtures("desktop")
def test_nothing_of_it_stays_after_the_job(cluster: LabCluster, lab: Page) -> None:
    assert cluster.holds(HOST, "pgrep -u alice -x Xvnc || pgrep -u alice Xtigervnc")

    stop_notebook(lab)

    wait_until("no process is left", lambda: not cluster.holds(HOST, "pgrep -u alice"), 60)
    assert cluster.root(HOST, "find /tmp/.X11-unix /tmp/.ICE-unix -type s") == ""
    assert cluster.root(HOST, "ls -d /tmp/notebook-* /tmp/.X*-lock 2>/dev/null", ok=False) == ""
