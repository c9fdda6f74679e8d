"""What nodes get of programs: files that run there on Python alone, and what they are told."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from deepopsctl.model.storage import NodeFile
from deepopsctl.node_programs.services.snapshots.cli import CONFIG
from deepopsctl.storage.user_tools import node_files, packages, timers
from tests.data.storage_samples import HOME, PROJECT, SCRATCH, SERVED, read
from tests.support.cluster_yml import faults
from tests.support.files import write_files

PYTHON = "/usr/bin/python3"


def texts(host: str, text: str = HOME + PROJECT + SCRATCH) -> dict[str, NodeFile]:
    return {file.path: file for file in node_files(read(text), host)}


def test_a_node_that_mounts_something_has_the_report() -> None:
    result = texts("gpu1")

    assert result["/usr/local/bin/diskusage_report"].mode == "0755"
    assert not any("purge" in path for path in result)
    assert json.loads(result["/etc/deepopsctl/diskusage.json"].content)["filesystems"] == [
        {"name": "home", "path": "/home", "type": "nfs", "quota": "user", "mounted": True},
        {
            "name": "project",
            "path": "/project",
            "type": "nfs",
            "quota": "project",
            "mounted": True,
            "projects": [
                {"name": "def-prof", "path": "/project/def-prof"},
                {"name": "prof-b", "path": "/project/rrg/prof-b"},
            ],
        },
        {"name": "scratch", "path": "/scratch", "type": "nfs", "quota": "user", "mounted": True},
    ]


@pytest.mark.parametrize(("path", "mounted"), [("/home", True), ("/srv/home", False)])
def test_a_server_knows_whether_its_own_directory_is_mounted_anywhere(path: str, mounted: bool) -> None:
    text = HOME.replace("path: /home", f"path: {path}\n    nodes: all")

    (home,) = json.loads(texts("nfs1", text)["/etc/deepopsctl/diskusage.json"].content)["filesystems"]

    assert (home["path"], home["type"], home["mounted"]) == (path, "local", mounted)


def test_one_node_has_the_purge_and_its_timer() -> None:
    assert "/usr/local/sbin/deepops-purge" in texts("ctl1")
    assert timers(read(SCRATCH), "ctl1") == ["deepops-purge-scratch.timer"]
    assert timers(read(SCRATCH), "gpu1") == []


def test_quota_is_installed_where_exports_count_by_users() -> None:
    assert packages(read(HOME), "gpu1") == {"quota": ""}
    assert packages(read(HOME), "nfs1") == packages(read(PROJECT), "gpu1") == {}
    assert texts("nfs1", HOME) == {}


@pytest.mark.skipif(not Path(PYTHON).exists(), reason="no Python of the system")
def test_the_programs_run_from_their_files_alone(tmp_path: Path) -> None:
    for path, file in texts("ctl1").items():
        # where launchers find them
        write_files(tmp_path, {path.lstrip("/"): file.content.replace('"/usr/local', f'"{tmp_path}/usr/local')})
        (tmp_path / path.lstrip("/")).chmod(int(file.mode, 8))
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": "/nonexistent", "PYTHONHOME": "/nonexistent"}
    config = tmp_path / "etc/deepopsctl/diskusage.json"
    config.write_text('{"filesystems": []}')

    def run(*argv: str | Path) -> tuple[int, str, str]:
        done = subprocess.run(argv, capture_output=True, text=True, env=environment)
        return done.returncode, done.stdout, done.stderr

    shown = run(tmp_path / "usr/local/bin/diskusage_report", "--config", config)
    status, output, error = run(
        tmp_path / "usr/local/sbin/deepops-purge", tmp_path / "etc/deepopsctl/purge/scratch.json"
    )

    assert shown == (0, "Description  Space  # of files\n", "")
    # no /scratch here
    assert (status, output, error[:7]) == (1, "", "error: ")
    assert not list(tmp_path.rglob("__pycache__"))


SNAPSHOTS = """\
  - {name: home, type: nfs, source: "nfs1:/srv/home", path: /home, snapshots: {hourly: 6, weekly: 0}}
  - {name: again, type: nfs, source: "nfs1:/srv/home", path: /again, snapshots: {hourly: 6, weekly: 0}}
  - {name: data, type: local, source: LABEL=data, path: /data, nodes: gpu1, snapshots: {}}
"""


def test_snapshots_are_taken_by_the_node_that_owns_a_file_system() -> None:
    mounts = read(SNAPSHOTS)

    taken = {
        host: [entry["path"] for entry in json.loads(files[CONFIG].content)["file_systems"]]
        for host in ("ctl1", "nfs1", "gpu1", "gpu2")
        if CONFIG in (files := texts(host, SNAPSHOTS))
    }

    assert taken == {"nfs1": ["/srv/home"], "gpu1": ["/data"]}
    assert json.loads(texts("nfs1", SNAPSHOTS)[CONFIG].content)["file_systems"] == [
        {"path": "/srv/home", "hourly": 6, "daily": 7, "weekly": 0, "free_percent": 10}
    ]
    assert (timers(mounts, "nfs1"), packages(mounts, "nfs1")) == (["deepops-snapshots.timer"], {"btrfs-progs": ""})
    assert timers(mounts, "gpu2") == []


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ('source: "filer:/home", type: nfs, snapshots: {}', "snapshots: its server is none of the cluster's"),
        ('source: "nfs1:/home", type: nfs, snapshots: {daily: many}', "snapshots.daily: 'many' is not a valid number"),
        ('source: "nfs1:/home", type: nfs, snapshots: {free_percent: 95}', "snapshots.free_percent: is more than 90"),
        (
            "source: LABEL=x, type: local, local: {shared: true}, snapshots: {}",
            "snapshots: several nodes share the disk",
        ),
        # each would delete what the other keeps
        (
            (
                'source: "nfs1:/srv/x", type: nfs, snapshots: {}}\n'
                '  - {name: again, path: /again, source: "nfs1:/srv/x", type: nfs, snapshots: {hourly: 1}'
            ),
            "snapshots: differs from home's at cluster.yml:8, which is the same export",
        ),
    ],
)
def test_refuses_snapshots_with_the_key(entry: str, message: str) -> None:
    (fault,) = faults(f"{SERVED}  - {{name: home, path: /home, {entry}}}\n")

    assert fault.endswith(message)
