"""What Prometheus and Alertmanager get, checked by the parsers that check it on the node."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.monitoring_roles import CTL1, alertmanager, prometheus
from tests.support.paths import ROOT
from tests.support.recorded_roles import content, record

RULES = ROOT / "roles" / "prometheus" / "files" / "rules"
File = Mapping[str, Any]


@dataclass(frozen=True)
class Written:
    """All files, in the order in which they are installed; where each is in a directory of the test."""

    files: list[File]
    paths: dict[str, Path]

    def guarded(self) -> list[File]:
        return [file for file in self.files if file.get("validate")]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    roles = [{"role": name} for name in ("monitoring_node", "prometheus", "alertmanager")]
    hosts = {"ctl1": {**CTL1, **prometheus(), **alertmanager()}}
    recorded = record(tmp_path_factory.mktemp("play"), roles, hosts)
    files = [file for step in ("node", "prometheus", "alertmanager") for file in recorded.step("ctl1", step).files]
    directory, paths = tmp_path_factory.mktemp("root"), {}
    for file in files:
        path = directory / file["path"].lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content(file).replace("/etc/prometheus", f"{directory}/etc/prometheus"), encoding="utf-8")
        paths[file["path"]] = path
    return Written(files, paths)


def validated(file: File, path: Path) -> subprocess.CompletedProcess[str]:
    """The result of the file's own parser."""
    argv = [str(path) if word == "%s" else word for word in file["validate"]]
    return subprocess.run(argv, capture_output=True, text=True, timeout=300)


def test_every_file_passes_the_check_that_guards_it(written: Written) -> None:
    results = {file["path"]: validated(file, written.paths[file["path"]]) for file in written.guarded()}

    assert {result.returncode for result in results.values()} == {0}, results
    assert len(results) == len(list(RULES.glob("*.yml"))) + 3
    # a file that is not there would only be a warning
    assert "does not exist" not in "".join(result.stdout + result.stderr for result in results.values())


def test_a_broken_file_is_refused_by_it(written: Written) -> None:
    for file in written.guarded():
        path = written.paths[file["path"]]
        broken = path.with_suffix(".broken")
        broken.write_text(f"{path.read_text()}\nno_such_key: [\n", encoding="utf-8")

        assert validated(file, broken).returncode != 0, file["path"]
