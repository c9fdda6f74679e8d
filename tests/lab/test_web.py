"""Notebooks and pages on a real cluster, in a real browser; two users try each other's notebooks and jobs."""

from __future__ import annotations

import filecmp
import json
import os
import re
import runpy
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.lab.chromium import needs_chromium
from tests.lab.harness import PREFIX, LabCluster, fresh_cluster, wait_until
from tests.lab.smoke import validate
from tests.lab.web import deploy_pages, job_of, logged_in, notebook, run_cell, status_of, wait_for_pages
from tests.support.paths import ROOT

pytestmark = needs_chromium
HOST, NODE = "login1", "gpu01"
LAB = "/user/alice/api/status"
# the kernel below a lab has no NFS: each node has its own
SPACES = """
storage:
  - {name: scratch, type: local, source: /srv/scratch, path: /scratch}
  - {name: project, type: local, source: /srv/project, path: /project}
spaces: {scratch: {storage: scratch}, project: {storage: project}}
"""
SERIOUS = """axe.run(document, {resultTypes: ['violations']}).then(found => found.violations
  .filter(rule => ['serious', 'critical'].includes(rule.impact)).map(rule => rule.id + ': ' + rule.nodes[0].html))"""
# of alice's home: more than a page of files, and what pages have to show
MANY = """rm -rf many; mkdir -p many; cd many; ln -s /etc elsewhere
for number in $(seq 250); do echo $number >sample-$number.csv; done
printf 'a\\342\\200\\256b\\033[31m\\n' >seen.txt"""
# what a cell prints: cores, GPUs, where
CELL = (
    "import os; print('cores', len(os.sched_getaffinity(0)), 'gpus', os.environ.get('CUDA_VISIBLE_DEVICES'), "
    "os.uname().nodename)"
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """A controller, a login node with the pages, a node with GPUs, and two users without passwords."""
    with fresh_cluster(f"{PREFIX}-web", tmp_path_factory, "--login", "1", "--compute", "1", "--gpus", "a100:2") as made:
        for name in ("ctl1", HOST, NODE):
            made.root(name, "mkdir -p /srv/scratch /srv/project")
        deploy_pages(made, "storage", spec=SPACES)
        yield made


def submit(cluster: LabCluster, user: str, options: str) -> str:
    return cluster.root(HOST, f"su - {user} -c 'sbatch --parsable {options}'").split()[0]


def state(cluster: LabCluster, job: str) -> str:
    return cluster.root(HOST, f"squeue -h -j {job} -o %T", ok=False)


def test_the_suite_uses_a_notebook_from_the_login_to_the_accounting(cluster: LabCluster) -> None:
    result = validate(cluster, suite="web")

    assert result.code == 0, result.shown
    assert {name for name, _ in result.checks} >= {"web-login", "web-files", "web-cell", "web-private", "web-stopped"}
    assert "GPUs 0" in result.message("web-cell", HOST)


def test_a_cell_in_jupyterlab_sees_what_its_job_has(cluster: LabCluster, browser: Browser) -> None:
    with notebook(cluster, browser, "alice", "a100") as page:
        # without what an earlier session had open
        page.goto("/user/alice/lab?reset")
        assert run_cell(page, CELL) == f"cores 1 gpus 0 {NODE}"
        job = job_of(cluster, "alice")
    wait_until("the job is gone", lambda: state(cluster, job) in ("", "COMPLETING") or "Invalid" in state(cluster, job))


def test_another_user_gets_to_no_notebook(cluster: LabCluster, browser: Browser) -> None:
    with notebook(cluster, browser, "alice"), logged_in(cluster, browser, "mallory") as mallory:
        assert status_of(mallory, "/user/alice/lab") == 403
        assert "not a notebook of yours" in mallory.inner_text("body")
        # and by its port, from the very node
        ports = cluster.root(NODE, "ss -Hltnp | grep python | grep -o '0.0.0.0:[0-9]*' | cut -d: -f2").split()
        assert ports
        for port in ports:
            shown = cluster.root(NODE, f"su - mallory -c 'curl -sk -m 5 https://127.0.0.1:{port}/api; echo =$?'")
            assert not shown.endswith("=0"), shown
            assert "version" not in shown


def test_another_users_job_is_not_cancelled(cluster: LabCluster, browser: Browser) -> None:
    job = submit(cluster, "alice", '--wrap="sleep 600"')
    wait_until("it runs", lambda: state(cluster, job) == "RUNNING")
    with logged_in(cluster, browser, "mallory") as page:
        page.goto("/hub/jobs")
        forged = page.evaluate(
            """async (job) => { const token = document.cookie.match(/_xsrf=([^;]*)/); const answer = await fetch(
            `/hub/jobs/${job}/cancel`, {method: 'POST', body: new URLSearchParams({_xsrf: token ? token[1] : ''})});
            return answer.status; }""",
            job,
        )
        assert forged == 403
        assert page.get_by_role("link", name=job, exact=True).count() == 0
    assert state(cluster, job) == "RUNNING"
    with logged_in(cluster, browser, "alice") as page:
        page.goto("/hub/jobs")
        page.get_by_role("button", name=f"Cancel job {job}").click()
        page.wait_for_load_state()
        wait_until("it is gone", lambda: state(cluster, job) != "RUNNING")


def test_a_waiting_job_says_why(cluster: LabCluster, browser: Browser) -> None:
    job = submit(cluster, "alice", "--hold --wrap=hostname")
    with logged_in(cluster, browser, "alice") as page:
        page.goto("/hub/jobs")
        page.get_by_role("link", name=f"why job {job} waits").click()
        assert f"scontrol release {job}" in page.inner_text("main")
        page.get_by_role("button", name=f"Cancel job {job}").click()


def test_usage_is_ones_own_and_that_of_ones_accounts(cluster: LabCluster, browser: Browser) -> None:
    for user in ("alice", "mallory"):
        job = submit(cluster, user, "--gpus=1 --wrap=hostname")
        wait_until("it is accounted", lambda: "COMPLETED" in cluster.root(HOST, f"sacct -nXj {job} -o state"))  # noqa: B023 (called at once)

    shown = cluster.root(HOST, "su - alice -c 'usage --json'")
    assert {row["user"] for row in json.loads(shown)["recent"]["rows"]} == {"alice"}
    with logged_in(cluster, browser, "alice") as page:
        page.goto("/hub/usage")
        assert "mallory" not in page.inner_text("main")
        page.get_by_role("link", name="all users of my accounts").click()
        page.get_by_role("cell", name="mallory").first.wait_for()
        page.goto("/hub/jobs?account=def-lab_gpu")
        page.get_by_role("cell", name="mallory").first.wait_for()
        page.goto("/hub/jobs?account=root")
        assert "not an account of yours" in page.inner_text("main")


def test_space_and_software_are_what_the_commands_of_login_nodes_say(cluster: LabCluster, browser: Browser) -> None:
    rows = json.loads(cluster.root(HOST, "su - alice -c 'diskusage_report --json'", ok=False))["rows"]
    assert {row["path"] for row in rows} == {"/project", "/scratch"}
    with logged_in(cluster, browser, "alice") as page:
        page.goto("/hub/space")
        for row in rows:
            page.get_by_role("heading", name=row["path"], exact=True).first.wait_for()
        page.goto("/hub/software")
        page.locator("summary", has_text="serial.sh").click()
        (copied,) = re.findall(r"cp (\S+/serial\.sh) \.", page.inner_text("main"))
        # the line that the page shows copies a job that runs
        cluster.root(HOST, f"su - alice -c 'cp {copied} . && sbatch --test-only serial.sh'")


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed: axe-core comes from it")
@pytest.mark.parametrize("options", [{}, {"color_scheme": "dark", "viewport": {"width": 390, "height": 844}}])
def test_the_pages_are_for_everyone(cluster: LabCluster, browser: Browser, options: dict[str, Any]) -> None:
    axe = runpy.run_path(str(ROOT / "scripts/check-site"))["axe"]()
    with logged_in(cluster, browser, "alice", bypass_csp=True, **options) as page:
        cluster.root(HOST, f"printf %s {shlex.quote(MANY)} | su - alice -s /bin/sh")
        for path in (
            *(
                "jobs",
                "jobs?account=def-lab_gpu",
                "usage?users=1",
                "space",
                "software",
                "cluster",
                "spawn",
                "files",
                "files/home",
            ),
            *("files/home/many?all=1&order=time", "files/home/many/seen.txt", "files/home/many/elsewhere"),
        ):
            page.goto(f"/hub/{path}")
            page.evaluate(axe)
            assert page.evaluate(SERIOUS) == [], path
            assert not page.evaluate("document.scrollingElement.scrollWidth > innerWidth + 1"), path


def test_files_go_both_ways_as_their_users(cluster: LabCluster, browser: Browser, tmp_path: Path) -> None:
    # what Chromium stores under the same name
    name = "a; 'ü' & #%.bin"
    (tmp_path / name).write_bytes(os.urandom(48 << 20))
    (tmp_path / "small.txt").write_text("one line\n", encoding="utf-8")
    with logged_in(cluster, browser, "alice") as page:
        page.goto("/hub/files")
        for label in ("Home", "Scratch", "Project of def-lab"):
            page.get_by_role("link", name=label).wait_for()
        page.get_by_role("link", name="Scratch").click()
        upload(page, [tmp_path / name, tmp_path / "small.txt"])
        page.get_by_role("link", name=name, exact=True).wait_for()
        with page.expect_download() as begun:
            page.get_by_role("link", name=f"Download {name}").click()
        assert begun.value.suggested_filename == name
        # a difference of 48 MiB is not shown
        assert filecmp.cmp(begun.value.path(), tmp_path / name, shallow=False)
        shown = cluster.root(HOST, "stat -c '%A %U:%G %s' /scratch/alice/small.txt; ls -A /scratch/alice")
        assert "-rw-r--r-- alice:alice 9" in shown
        assert ".deepops-upload" not in shown
        # not a second time, unless that is asked for
        upload(page, [tmp_path / "small.txt"])
        page.get_by_text("small.txt: is already there").wait_for()
        page.goto("/hub/files/scratch/small.txt")
        assert "one line" in page.inner_text("main")
        page.locator("summary", has_text="Rename").click()
        page.get_by_label("New name").fill("other.txt")
        page.get_by_label("New name").press("Enter")
        page.get_by_role("link", name="other.txt", exact=True).click()
        page.locator("summary", has_text="Delete").click()
        page.get_by_role("button", name="Delete other.txt").click()
        page.wait_for_url("**/files/scratch")
        assert page.get_by_role("link", name="other.txt", exact=True).count() == 0
    log = cluster.root(HOST, "journalctl -u deepops-web-hub -o cat -g 'audit: file'")
    for text in ("upload user=alice place='scratch/small.txt'", "upload refused", "download", "rename", "remove"):
        assert text in log, text


def upload(page: Page, paths: list[Path]) -> None:
    page.locator("summary", has_text="Upload").click()
    page.get_by_label("Files", exact=True).set_input_files(paths)
    page.get_by_role("button", name="Upload").click()


def answer_of(page: Page, path: str) -> int:
    status: int = page.evaluate("async path => (await fetch('/hub/' + path)).status", path)
    return status


def test_another_users_files_are_not_reached_by_address_link_or_upload(cluster: LabCluster, browser: Browser) -> None:
    hostile = """cd /project/def-lab && ln -sfn ~alice innocent && ln -sfn /etc etc
        test -p pipe || mkfifo -m 666 pipe
        ln -sfn ~alice/.ssh keys; touch "$(printf 'turned\\342\\200\\256fdp.exe')" '<img src=x onerror=alert(1)>'"""
    cluster.root(HOST, "su - alice -c 'mkdir -p .ssh; echo private > secret; chmod 600 secret; chmod 700 .'")
    cluster.root(HOST, f"printf %s {shlex.quote(hostile)} | su - mallory -s /bin/sh")
    with logged_in(cluster, browser, "mallory") as page:
        page.goto("/hub/files")
        for path in (
            *("files/home/../alice", "files/home/%2e%2e/alice", "files/home/..%2falice/secret", "files/alice"),
            *("files-download/home/..%2Falice%2Fsecret", "files/scratch:alice", "files/project:root"),
        ):
            assert answer_of(page, path) == 404, path
        # her own links: where the file system says no, and never through them
        for path in ("innocent/secret", "etc/passwd"):
            assert answer_of(page, f"files/project:def-lab/{path}") == 403, path
            assert answer_of(page, f"files-download/project:def-lab/{path}") == 403, path
        for name in ("innocent", "etc", "pipe"):
            assert answer_of(page, f"files-download/project:def-lab/{name}") == 403, name
    with logged_in(cluster, browser, "alice") as page:
        page.goto("/hub/files/project:def-lab")
        assert "turned<U+202E>fdp.exe" in page.inner_text("main")
        assert page.locator("main img").count() == 0
        token = page.locator("input[name=_xsrf]").first.get_attribute("value") or ""
        # a link that another user made does not put her file where it leads, nor takes one from there
        assert post(page, "files-upload/project:def-lab/keys", token, "file", "mine") == 403
        assert post(page, "files/project:def-lab/innocent/secret", token, "do", "remove") == 403
        for forged in ("", "2|0|0|0"):
            assert post(page, "files-upload/home", forged, "file", "mine") == 403
            assert post(page, "files/home/secret", forged, "do", "remove") == 403
    assert cluster.root(HOST, "cat ~alice/secret; ls -A ~alice/.ssh") == "private"


def post(page: Page, path: str, token: str, field: str, value: str) -> int:
    """The status of a form that is sent with the user's cookies: one field, or a file."""
    status: int = page.evaluate(
        """async ([path, token, field, value]) => {
        const file = new File([value], 'authorized_keys'), form = new FormData();
        form.append(field, field == 'file' ? file : value);
        const body = field == 'file' ? form : new URLSearchParams(form);
        return (await fetch(`/hub/${path}?_xsrf=${encodeURIComponent(token)}`, {method: 'POST', body})).status; }""",
        [path, token, field, value],
    )
    return status


def test_a_full_file_system_is_said_and_nothing_is_half_done(
    cluster: LabCluster, browser: Browser, tmp_path: Path
) -> None:
    (tmp_path / "large").write_bytes(bytes(100 << 20))
    (tmp_path / "small").write_bytes(b"x")
    cluster.root(HOST, "mkdir -p ~alice/tiny && mount -t tmpfs -o size=1m,nr_inodes=1,mode=777 none ~alice/tiny")
    try:
        with logged_in(cluster, browser, "alice") as page:
            for name, text in (("large", "100 MiB, and the file system has 1 MiB free"), ("small", "system is full")):
                page.goto("/hub/files/home/tiny")
                upload(page, [tmp_path / name])
                # a connection that no one reads from ends after a minute, and Chromium tries once more: 122 s
                page.get_by_text(text).wait_for(timeout=100_000)
        assert cluster.root(HOST, "ls -A ~alice/tiny") == ""
    finally:
        cluster.root(HOST, "umount ~alice/tiny; rmdir ~alice/tiny")


def test_an_upload_that_is_cut_off_leaves_nothing(cluster: LabCluster, browser: Browser, tmp_path: Path) -> None:
    with logged_in(cluster, browser, "alice") as page:
        page.goto("/hub/files/scratch")
        page.evaluate(
            """async () => { const stop = new AbortController(), form = document.querySelector('form.upload');
            const body = new FormData(); body.append('file', new Blob([new Uint8Array(300 << 20)]), 'cut.bin');
            setTimeout(() => stop.abort(), 400);
            await fetch(form.action, {method: 'POST', body, signal: stop.signal}).catch(() => 0); }"""
        )
    wait_until("its process has ended", lambda: not cluster.holds(HOST, "pgrep -f deepops-web-[f]iles"), 60)
    assert cluster.root(HOST, "ls -A /scratch/alice | grep -e cut -e deepops-upload", ok=False) == ""


def test_a_restart_of_the_hub_and_of_the_proxy_keeps_the_notebook(cluster: LabCluster, browser: Browser) -> None:
    with notebook(cluster, browser, "alice") as page:
        job = job_of(cluster, "alice")
        cluster.root(HOST, "systemctl restart deepops-web-hub haproxy")
        try:
            wait_until("the notebook answers", lambda: status_of(page, LAB) == 200, 120)
            assert state(cluster, job) == "RUNNING"
        finally:
            # JupyterHub itself loads for longer than the notebook was away
            wait_for_pages(cluster)


def test_a_dead_controller_is_said_on_each_page_and_the_notebook_goes_on(cluster: LabCluster, browser: Browser) -> None:
    with notebook(cluster, browser, "alice") as page:
        job = job_of(cluster, "alice")
        with no_controller(cluster):
            for path in ("jobs", f"jobs/{job}", "cluster"):
                page.goto(f"/hub/{path}")
                assert "controller does not answer now" in page.inner_text("[role=alert]"), path
            page.goto("/hub/jobs")
            assert "Not known now." in page.inner_text("main")
            assert status_of(page, LAB) == 200
    with logged_in(cluster, browser, "alice") as page, no_controller(cluster):
        page.goto("/hub/spawn")
        assert "controller does not answer now" in page.inner_text("body")


@contextmanager
def no_controller(cluster: LabCluster) -> Iterator[None]:
    cluster.root("ctl1", "systemctl stop slurmctld")
    try:
        yield
    finally:
        cluster.root("ctl1", "systemctl start slurmctld")
        wait_until("Slurm answers", lambda: cluster.holds(HOST, "squeue -h"), 60)


def test_the_name_of_a_job_is_text_on_the_pages(cluster: LabCluster, browser: Browser) -> None:
    name = "<img src=x onerror=document.title='taken'>{{ 7 * 7 }}|&quot;"
    script = f"sbatch --parsable --hold --wrap=hostname --job-name={shlex.quote(name)}\n"
    cluster.root(HOST, f"printf %s {shlex.quote(script)} | su - alice -s /bin/sh")
    job = cluster.root(HOST, "squeue -h -u alice -t PD -o %i").split()[-1]
    with logged_in(cluster, browser, "alice") as page:
        try:
            answer = page.goto("/hub/jobs")
            assert answer is not None
            assert "script-src 'self'" in answer.headers["content-security-policy"]
            assert name in page.inner_text("main")
            page.goto(f"/hub/jobs/{job}")
            assert page.locator("main img").count() == 0
            assert "taken" not in page.title()
        finally:
            cluster.root(HOST, f"scancel {job}")


def test_a_form_of_another_site_cancels_nothing(cluster: LabCluster, browser: Browser) -> None:
    job = submit(cluster, "alice", "--hold --wrap=hostname")
    with logged_in(cluster, browser, "alice") as page:
        try:
            address = f"https://{HOST}/hub/jobs/{job}/cancel"
            page.goto("/hub/jobs")
            for sent in ("", "2|0|0|0"):
                refused = page.evaluate(
                    """async ([url, _xsrf]) => { const body = new URLSearchParams({_xsrf});
                    return (await fetch(url, {method: 'POST', body})).status; }""",
                    [address, sent],
                )
                assert refused == 403
            page.goto("about:blank")
            page.set_content(f'<form method="post" action="{address}"><button>Win a GPU</button></form>')
            page.get_by_role("button").click()
            page.wait_for_load_state()
            assert state(cluster, job) == "PENDING"
        finally:
            cluster.root(HOST, f"scancel {job}")


def test_who_has_logged_out_is_so_with_a_copy_of_the_cookies_too(cluster: LabCluster, browser: Browser) -> None:
    with logged_in(cluster, browser, "alice") as page:
        kept = page.context.storage_state()
        page.goto("/hub/logout")
        with browser.new_context(ignore_https_errors=True, storage_state=kept) as copied:
            other = copied.new_page()
            other.goto(f"https://{HOST}/hub/jobs")
            assert "/hub/login" in other.url
    assert "logout user=alice" in cluster.root(HOST, "journalctl -u deepops-web-hub -o cat -g audit:")


def test_the_session_of_a_closed_account_ends(cluster: LabCluster, browser: Browser) -> None:
    with logged_in(cluster, browser, "mallory") as page:
        cluster.root(HOST, "usermod --expiredate 1 mallory")
        try:
            # JupyterHub asks again after five minutes; when it starts, at once
            cluster.root(HOST, "systemctl restart deepops-web-hub")
            wait_until("the pages answer", lambda: status_of(page, "/hub/login") == 200, 60)
            page.goto("/hub/jobs")
            assert "/hub/login" in page.url
        finally:
            cluster.root(HOST, "usermod --expiredate '' mallory")
        page.goto("/hub/jobs")
        assert page.url.endswith("/hub/jobs")
    assert "session ended user=mallory" in cluster.root(HOST, "journalctl -u deepops-web-hub -o cat -g audit:")


def test_the_log_has_logins_and_cancels(cluster: LabCluster) -> None:
    log = cluster.root(HOST, "journalctl -u deepops-web-hub -o cat -g audit:")

    for text in (
        "link given user=alice",
        "login user='alice' by=link",
        "notebook started user=alice",
        "cancel refused user=mallory",
    ):
        assert text in log, text


def test_the_units_have_no_rights(cluster: LabCluster) -> None:
    shown = cluster.root(
        HOST, "pid=$(systemctl show -P MainPID deepops-web-hub); grep -E '^(Uid|CapEff|NoNewPrivs)' /proc/$pid/status"
    )

    assert "Uid:\t0" not in shown
    assert "CapEff:\t0000000000000000" in shown
    assert "NoNewPrivs:\t1" in shown
    # no user of the node asks in JupyterHub's place
    refused = cluster.root(HOST, "su - mallory -c 'curl -s -m 5 --unix-socket /run/deepops-web-agent.sock x; echo =$?'")
    assert refused.endswith("=7")


def test_a_second_deploy_changes_nothing(cluster: LabCluster) -> None:
    assert set(cluster.changed(cluster.parsed("deploy", "web")).values()) == {0}
