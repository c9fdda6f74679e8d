"""Web pages on a lab's cluster, and two of their users in a browser: alice, and mallory who wants what is hers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from playwright.sync_api import Browser, Error as PlaywrightError, Page, TimeoutError as SlowError

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.model.cluster import Role
from tests.lab.harness import SETTINGS, LabCluster, edit, wait_until

PEOPLE = """\
schema: 1
groups: [{name: def-lab, gid: 3001, pi: alice}]
people: [{name: alice, uid: 2001, groups: [def-lab]}, {name: mallory, uid: 2002, groups: [def-lab]}]
"""
PATIENCE_MS = 240_000


def deploy_pages(cluster: LabCluster, *components: str, settings: str = "", spec: str = "") -> None:
    """Deploy Slurm and the pages, on the login node or on the controller, with more lines of a site's files."""
    directory = ClusterDir(cluster.directory)
    if not directory.cluster().with_role(Role.LOGIN):
        edit(directory.spec, "roles: [", "roles: [login, ")
    wanted = ", ".join(("slurm", "environment", "web", *components))
    text = re.sub(r"(?m)^components: .*", f"components: [{wanted}]", directory.spec.read_text(encoding="utf-8"))
    directory.spec.write_text(text + spec, encoding="utf-8")
    edit(cluster.directory / SETTINGS, "---\n", f"---\n{settings}")
    (cluster.directory / "people.yml").write_text(PEOPLE, encoding="utf-8")
    cluster.deepopsctl("deploy")
    wait_for_pages(cluster)


def wait_for_pages(cluster: LabCluster) -> None:
    """Until a user gets a link: JupyterHub loads for some seconds after its unit is up."""
    wait_until("the pages answer", lambda: cluster.holds(host_of(cluster), "su - alice -c web"), 120)


def host_of(cluster: LabCluster) -> str:
    """The node that has the pages."""
    return ClusterDir(cluster.directory).cluster().with_role(Role.LOGIN)[0].name


@contextmanager
def logged_in(cluster: LabCluster, browser: Browser, user: str, **options: Any) -> Iterator[Page]:
    """A window of its own for one user; addresses in it may begin with their path."""
    url = cluster.root(host_of(cluster), f"su - {user} -c web").split()[0]
    # who signs the certificate is what `validate web` compares
    with browser.new_context(ignore_https_errors=True, base_url=url, **options) as context:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        log_in(page, user, url)
        yield page


def log_in(page: Page, user: str, url: str) -> None:
    """By the user's link."""
    page.goto(url)
    page.get_by_role("button", name=f"Log in as {user}").click()
    page.wait_for_url("**/hub/**")


@contextmanager
def notebook(cluster: LabCluster, browser: Browser, user: str, gpu: str = "none") -> Iterator[Page]:
    """The same with a notebook that runs meanwhile."""
    with logged_in(cluster, browser, user) as page:
        start_notebook(page, user, gpu)
        try:
            yield page
        finally:
            stop_notebook(page)


def start_notebook(page: Page, user: str, gpu: str = "none") -> None:
    """By the form, as it is but for GPUs."""
    for _ in range(12):
        page.goto("/hub/spawn")
        # a busy Slurm, or a notebook that is not gone yet: a user loads the page again
        with suppress(SlowError):
            page.get_by_role("button", name="Start").wait_for(timeout=10_000)
            break
    if gpu != "none":
        page.get_by_label("GPU", exact=True).select_option(gpu)
    page.get_by_role("button", name="Start").click()
    page.wait_for_url(f"**/user/{user}/**")


def stop_notebook(page: Page) -> None:
    """Also where none runs."""
    page.goto("/hub/home")
    for _ in range(20):
        # the page's script may not have the button yet
        with suppress(SlowError):
            page.get_by_role("button", name="Stop My Server").click(timeout=5_000)
        with suppress(SlowError):
            page.get_by_role("button", name="Start My Server").wait_for(timeout=10_000)
            return
    raise AssertionError("the notebook does not stop")


def open_tile(page: Page, user: str, title: str) -> Page:
    """The window that a tile of JupyterLab opens."""
    tile = page.locator(".jp-LauncherCard", has_text=title).first
    for _ in range(4):
        # without what an earlier session had open
        answer = page.goto(f"/user/{user}/lab?reset")
        assert answer is not None
        assert answer.status == 200, page.inner_text("body")
        # JupyterLab asks for its tiles once: without an answer a user loads the page again
        with suppress(SlowError):
            tile.wait_for(timeout=60_000)
            break
    with page.context.expect_page() as opened:
        tile.click()
    opened.value.set_default_timeout(PATIENCE_MS)
    return opened.value


def run_cell(page: Page, code: str) -> str:
    """What it prints in a new notebook. Before its kernel is connected, JupyterLab runs none, and does not say so."""
    page.get_by_role("button", name="Python 3").first.click()
    page.locator(".jp-Notebook .cm-content").first.click()
    page.keyboard.insert_text(code)
    output = page.locator(".jp-OutputArea-output").first
    for _ in range(200):
        page.locator(".jp-Notebook .cm-content").first.click()
        page.keyboard.press("Control+Enter")
        with suppress(SlowError):
            output.wait_for(timeout=1_000)
            return output.inner_text().strip()
    raise AssertionError("the cell prints nothing")


def job_of(cluster: LabCluster, user: str) -> str:
    """That of a user's notebook."""
    (job,) = cluster.root(host_of(cluster), f"squeue -h -u {user} -n notebook -o %i").split()
    return job


def has_a_shell_in_its_job(cluster: LabCluster, enter: Callable[[str], None]) -> None:
    """What is entered on a terminal in a window of alice's is run by her, in her notebook's job, on a single node."""
    host = host_of(cluster)

    def has_written() -> bool:
        # what is typed while the window still loads goes elsewhere
        enter("echo $(id -un) $SLURM_JOB_ID $PWD > ~/seen")
        return cluster.holds(host, "test -s /home/alice/seen")

    wait_until("its shell has written", has_written, 120)
    assert cluster.root(host, "cat /home/alice/seen") == f"alice {job_of(cluster, 'alice')} /home/alice"


def status_of(page: Page, address: str) -> int:
    """0 without an answer, also where another lab that comes or goes changes this host's network."""
    with suppress(PlaywrightError):
        answer = page.goto(address)
        return answer.status if answer else 0
    return 0
