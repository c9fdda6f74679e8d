"""What the answers of a node's job mean, and that its tree holds a shell that runs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.node_programs.suites.validate_containers import evaluation, main, probe

DENIED, OPENED = "Operation not permitted", "No such device or address"
ENGINES = ("podman", "charliecloud", "apptainer", "oci")


def answer(cpus: str = "0", ids: int = 65_537, *outputs: str) -> dict[str, Any]:
    return {"cpus": cpus, "ids": ids, "devices": {f"nvidia{number}": words for number, words in enumerate(outputs)}}


def data(**changed: Any) -> dict[str, Any]:
    """A node on which all is well: a job with one of two GPUs."""
    outputs = (DENIED, OPENED)
    return {
        "errors": {},
        "outside": answer("0", 2**32, *outputs),
        "podman": answer("0", 65_537, *outputs),
        "charliecloud": answer("0", 1, *outputs),
        "apptainer": answer("0", 1, *outputs),
        "oci": answer("0", 1, *outputs),
        "starts": {"asked": 50, "started": 50, "seconds": 9.1, "words": ""},
        **changed,
    }


def failed(changed: dict[str, Any]) -> dict[str, str]:
    checks = list(evaluation.evaluate("gpu01", ENGINES, changed, 1))
    assert {check["status"] for check in checks} <= {"pass", "fail"}
    return {check["name"]: check["message"] for check in checks if check["status"] == "fail"}


def test_a_node_on_which_all_is_well() -> None:
    assert failed(data()) == {}
    assert len(list(evaluation.evaluate("gpu01", ENGINES, data(), 1))) == 6


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"podman": answer("0-1", 65_537, DENIED, OPENED)}, "containers-podman"),
        ({"podman": answer("0", 1, DENIED, OPENED)}, "containers-podman"),
        ({"charliecloud": answer("", 1, DENIED, OPENED)}, "containers-charliecloud"),
        ({"apptainer": answer("0", 1, OPENED, OPENED)}, "containers-devices"),
        ({"errors": {"apptainer": "apptainer build: no"}}, "containers-apptainer"),
        ({"podman": answer("0", 65_537, OPENED, OPENED)}, "containers-devices"),
        ({"podman": answer("0", 65_537)}, "containers-devices"),
        ({"starts": {"asked": 50, "started": 49, "seconds": 9.1, "words": "no space"}}, "containers-starts"),
        ({"errors": {"podman": "podman import: no"}}, "containers-podman"),
        ({"errors": {"registry": "podman pull: no"}}, "containers-registry"),
        ({"oci": answer("0", 2**32, DENIED, OPENED)}, "containers-oci"),
        ({"registry": answer("0-1")}, "containers-registry"),
    ],
)
def test_what_differs_from_the_job_fails_by_name(changed: dict[str, Any], name: str) -> None:
    assert list(failed(data(**changed))) == [name]


def test_the_shells_answers_are_read() -> None:
    text = (
        "cpus \t0-1\nids 1\nids 65536\n/bin/sh: 3: cannot create /dev/nvidia0: Operation not permitted\n"
        "device /dev/nvidia1: opened\n"
    )

    assert probe.answers(text) == {
        "cpus": "0-1", "ids": 65_537, "devices": {"nvidia0": DENIED, "nvidia1": "opened"}
    }  # fmt: skip


def test_the_tree_has_a_shell_with_its_libraries(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    probe.make_tree(str(tree))

    # the loader of the tree finds them in the tree: chroot needs root, which the lab's test is
    wanted = [
        line.split()[2]
        for line in probe.command_output(["ldd", os.path.realpath("/bin/sh")]).splitlines()
        if "=>" in line
    ]
    assert [name for name in wanted if not (tree / name.lstrip("/")).is_file()] == []
    assert subprocess.run([tree / "bin/sh", "-c", probe.ASK], capture_output=True).returncode == 0


def test_what_is_left_of_a_job_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "EPILOG_S", 0)
    (tmp_path / "gpu01").mkdir()
    (tmp_path / "gpu01" / "12").mkdir()
    request = {"jobs": ["12"], "node": "gpu01", "directory": str(tmp_path)}

    assert main.after(request)["checks"][0]["status"] == "fail"
    (tmp_path / "gpu01" / "12").rmdir()
    assert main.after(request)["checks"][0]["status"] == "pass"
    assert main.after({**request, "jobs": []})["checks"][0]["status"] == "skip"
