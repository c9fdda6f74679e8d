"""Files of Slurm's configuration that go: nodes drop their copy of oci.conf with a reconfigure."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import node_modules as nodeside

node_changes = nodeside.load("node.changes")
slurm_config = nodeside.plugin("modules", "slurm_config")
MANAGED = "# Written by deepopsctl\n"


def params(directory: Path, *, primary: bool = True) -> dict[str, object]:
    return {"directory": str(directory), "primary": primary, "files": {"slurm.conf": MANAGED}}


@pytest.mark.parametrize(("text", "dry", "primary", "stays"), [
    pytest.param(MANAGED, False, True, False, id="goes"),
    pytest.param(MANAGED, True, True, True, id="would go"),
    pytest.param("RunTimeRun=x\n", False, True, True, id="a person's"),
    pytest.param(MANAGED, False, False, True, id="of a standby, when it has the rest"),
])  # fmt: skip
def test_oci_conf_goes_before_the_reconfigure_that_is_noted_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, dry: bool, primary: bool, stays: bool
) -> None:
    marked: list[str] = []
    monkeypatch.setattr(slurm_config.node_record, "mark_pending", lambda what, _why: marked.append(what))
    (tmp_path / "oci.conf").write_text(text, encoding="utf-8")

    removed = slurm_config.remove_bundles(node_changes.Noted(dry), params(tmp_path, primary=primary))

    assert (tmp_path / "oci.conf").exists() is stays
    assert bool(marked) is not stays
    wanted = text == MANAGED and primary
    assert [entry["action"] for entry in removed] == (["remove"] if wanted else [])


def test_files_that_slurm_conf_calls_for_go_after_it(tmp_path: Path) -> None:
    for name in ("topology.conf", "oci.conf"):
        (tmp_path / name).write_text(MANAGED, encoding="utf-8")

    assert [Path(path).name for path in slurm_config.obsolete(params(tmp_path))] == ["topology.conf", "oci.conf"]
