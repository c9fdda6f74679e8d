"""From an account to a cell that has run: seconds of each stage, for a user who clicks as soon as there is a button.

A lab of a controller, a login node with the pages and a compute node; Chromium is on the same machine. Each round the
user has never had a notebook: asks for a link by ssh, logs in, starts a notebook with the form as it is, opens a
notebook of Python in JupyterLab and runs a cell.

    python -m benchmarks.first_cell [--rounds 5]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from deepopsctl.cluster.directory import ClusterDir
from tests.lab.chromium import chromium
from tests.lab.harness import PREFIX, LabCluster, fresh_cluster
from tests.lab.web import PATIENCE_MS, deploy_pages, log_in, run_cell, start_notebook, stop_notebook

HOST, USER = "login1", "alice"
FORGET = f"rm -rf ~{USER}/.jupyter ~{USER}/.local ~{USER}/.ipython ~{USER}/.cache ~{USER}/Untitled*"


def link(cluster: LabCluster) -> str:
    """What `ssh login1 web` prints for the user."""
    directory = ClusterDir(cluster.directory)
    (node,) = (node for node in directory.cluster().nodes if node.name == HOST)
    options = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "BatchMode=yes")
    words = [word for option in options for word in ("-o", option)]
    argv = ["ssh", "-F", "none", "-i", str(directory.ssh_key), *words, f"{USER}@{node.address}", "web"]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()[0]


def stages(cluster: LabCluster, browser: Browser) -> Iterator[str]:
    """The name of each, when it is over."""
    url = link(cluster)
    yield "link"
    with browser.new_context(ignore_https_errors=True, base_url=url) as context:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        log_in(page, USER, url)
        yield "login"
        start_notebook(page, USER)
        yield "notebook"
        page.get_by_role("button", name="Python 3").first.wait_for()
        yield "JupyterLab"
        printed = run_cell(page, "print(6 * 7)")
        yield "cell"
        stop_notebook(page)
    if printed != "42":
        raise SystemExit(f"the cell prints {printed}")


def measure(cluster: LabCluster, browser: Browser) -> dict[str, float]:
    """Seconds of one round's stages."""
    for node in (HOST, "ctl1", "cn01"):
        cluster.root(node, FORGET)
    taken, began = {}, time.monotonic()
    for name in stages(cluster, browser):
        taken[name] = time.monotonic() - began
        began = time.monotonic()
    return taken


def main(arguments: list[str]) -> int:
    """Make the lab, and print a line for each round."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    directories = pytest.TempPathFactory(Path(tempfile.mkdtemp()), 3, "all", lambda *_: None, _ispytest=True)
    with fresh_cluster(f"{PREFIX}-cell", directories, "--login", "1", "--compute", "1") as cluster:
        deploy_pages(cluster)
        public = ClusterDir(cluster.directory).ssh_key.with_suffix(".pub").read_text(encoding="utf-8").strip()
        cluster.root(HOST, f"install -d -o {USER} -m 700 ~{USER}/.ssh; echo '{public}' > ~{USER}/.ssh/authorized_keys")
        with chromium(cluster) as browser:
            for _ in range(options.rounds):
                taken = measure(cluster, browser)
                each = ", ".join(f"{name} {seconds:.1f}" for name, seconds in taken.items())
                print(f"{sum(taken.values()):5.1f} s: {each}; load {os.getloadavg()[0]:.1f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
