"""What Prometheus and Alertmanager get, checked by the parsers that check it on the node."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from deepopsctl.certificates.authority import new_authority
from deepopsctl.monitoring import prometheus_server, targets, tls
from deepopsctl.monitoring.resources import File
from tests.support.paths import ROOT
from tests.unit.monitoring.test_prometheus_server import HOST, NODE, SETTINGS

RULES = ROOT / "roles" / "prometheus" / "files" / "rules"
MACHINE = replace(
    HOST,
    settings={**SETTINGS, "exporter_tls": True},
    secrets={**HOST.secrets, "authority": new_authority(date(2026, 11, 1))},
)


def everything() -> tuple[File, ...]:
    """All files, in the order in which they are installed."""
    rules = {path.name: path.read_text(encoding="utf-8") for path in sorted(RULES.glob("*.yml"))}
    prometheus = prometheus_server.prometheus(MACHINE, targets.render([MACHINE, NODE]), rules)
    return (*tls.files(MACHINE).files, *prometheus.files, *prometheus_server.alertmanager(MACHINE).files)


@pytest.fixture
def config_paths(tmp_path: Path) -> dict[str, Path]:
    """They are in a directory of the test's instead of /etc."""
    paths = {}
    for file in everything():
        path = tmp_path / file.path.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.content.replace("/etc/prometheus", f"{tmp_path}/etc/prometheus"), encoding="utf-8")
        paths[file.path] = path
    return paths


def validated(file: File, path: Path) -> subprocess.CompletedProcess[str]:
    """The result of the file's own parser."""
    argv = [str(path) if word == "%s" else word for word in file.validate]
    return subprocess.run(argv, capture_output=True, text=True, timeout=300)


def test_every_file_passes_the_check_that_guards_it(config_paths: dict[str, Path]) -> None:
    guarded = [file for file in everything() if file.validate]
    results = {file.path: validated(file, config_paths[file.path]) for file in guarded}

    assert {result.returncode for result in results.values()} == {0}, results
    assert len(guarded) == len(list(RULES.glob("*.yml"))) + 3
    # a file that is not there would only be a warning
    assert "does not exist" not in "".join(result.stdout + result.stderr for result in results.values())


def test_a_broken_file_is_refused_by_it(config_paths: dict[str, Path]) -> None:
    for file in (file for file in everything() if file.validate):
        broken = config_paths[file.path].with_suffix(".broken")
        broken.write_text(f"{config_paths[file.path].read_text()}\nno_such_key: [\n", encoding="utf-8")

        assert validated(file, broken).returncode != 0, file.path
