"""The NFS server of a node that serves directories: running now, and at every start."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support import node_modules as nodeside

nfs_exports = nodeside.plugin("modules", "nfs_exports")
HintedError = nodeside.load("node.errors").HintedError


@pytest.mark.parametrize(
    ("active", "enabled", "action"),
    [
        ("active", "enabled", []),
        ("active", "disabled", ["enable"]),
        ("inactive", "enabled", ["start"]),
        ("inactive", "disabled", ["start"]),
    ],
)
def test_a_server_that_the_next_start_of_the_node_would_leave_off_is_enabled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, active: str, enabled: str, action: list[str]
) -> None:
    export = {"path": "/srv/home", "line": "/srv/home 192.0.2.0/24(rw)"}
    wanted = {"component": "storage", "step": "nfs_exports", "exports": [export], "threads": 8, "rdma": False}
    step = nfs_exports.Step(SimpleNamespace(params=wanted, check_mode=False))
    ran: list[list[str]] = []
    facts = {"LoadState": "loaded", "ActiveState": active, "UnitFileState": enabled}
    monkeypatch.setattr(nfs_exports.node_services, "show", lambda names: dict.fromkeys(names, facts))
    monkeypatch.setattr(nfs_exports.command, "require", ran.append)
    monkeypatch.setattr(nfs_exports, "put_in_force", lambda _step: None)
    monkeypatch.setattr(nfs_exports, "THREADS", str(tmp_path / "threads"))
    monkeypatch.setattr(nfs_exports, "PORTS", str(tmp_path / "ports"))

    nfs_exports.serve(step)

    assert [change["action"] for change in step.noted.changes] == action
    assert len(ran) == len(action)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes links of others")
def test_what_a_users_link_leads_to_is_not_exported(tmp_path: Path) -> None:
    (tmp_path / "shared").symlink_to("/etc")
    os.chown(tmp_path / "shared", 65534, 65534, follow_symlinks=False)
    step = SimpleNamespace(lines={str(tmp_path / "shared"): "..."}, dry=True)

    with pytest.raises(HintedError, match="shared is a link of a user's"):
        nfs_exports.make_directories(step)


def test_a_kernel_that_does_not_listen_on_rdma_is_no_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nfs_exports, "PORTS", "/dev/full")
    monkeypatch.setattr(nfs_exports.node_files, "read", lambda _path: b"tcp 2049\n")
    monkeypatch.setattr(nfs_exports.command, "require", lambda _words: "")
    noted = SimpleNamespace(did=lambda *_words, **_more: None)

    with pytest.raises(HintedError, match="can't listen on RDMA, port 20049"):
        nfs_exports.listen(SimpleNamespace(wanted={"rdma": True}, noted=noted, dry=False))
