"""Executables of checks.d: which are taken, and what is said about the others."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path

from deepopsctl.validation.site_checks import read_checks
from tests.support.files import write_program
from tests.support.problems import problems_of


def test_executables_are_found_where_they_run(tmp_path: Path) -> None:
    write_program(tmp_path / "checks.d" / "jobs" / "licence.py", "echo 1")
    write_program(tmp_path / "checks.d" / "nodes" / "fan-speed", "echo 2")
    for path in ("stream.py", "lib/common.py", "__pycache__/x.pyc"):
        write_program(tmp_path / "checks.d" / "reframe" / path, "")
    (tmp_path / "checks.d" / "README.md").write_text("what they are for", encoding="utf-8")

    checks = read_checks(tmp_path)

    assert {place: list(named) for place, named in checks.items()} == {
        "jobs": ["licence"], "nodes": ["fan-speed"], "reframe": ["lib/common.py", "stream.py"],
    }  # fmt: skip
    assert b"echo 2" in b64decode(checks["nodes"]["fan-speed"])


def test_every_file_that_is_no_check_is_named(tmp_path: Path) -> None:
    place = tmp_path / "checks.d"
    write_program(place / "nodes" / "both", "echo 1")
    write_program(place / "jobs" / "both.sh", "echo 1")
    write_program(place / "jobs" / "Bad Name", "echo 1")
    write_program(place / "jobs" / "large", "#" * 70_000)
    write_program(place / "alone", "echo 1")
    (place / "nodes" / "plain").write_text("x", encoding="utf-8")

    named = problems_of(lambda: read_checks(tmp_path))

    assert sorted(each.where for each in named) == [
        "checks.d/alone", "checks.d/jobs/Bad Name", "checks.d/jobs/large", "checks.d/nodes/both",
        "checks.d/nodes/plain",
    ]  # fmt: skip
    assert problems_of(lambda: read_checks(tmp_path / "other"))[0].where == "checks.d"
