"""What plugstack.conf has jobs load, and the release that each plugin was built for: read, never run."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from deepopsctl.node_programs._shared import spank


def plugin(path: Path, version: int, name: bytes = b"plugin_version") -> Path:
    """A shared library as far as it matters: three sections, a symbol in the last, which holds the version."""
    names, data = b"\0" + name + b"\0", struct.pack("<I", version)
    symbols = struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0) + struct.pack("<IBBHQQ", 1, 0x11, 0, 3, 0x1000, 4)
    at, parts, sections = 64, [], [struct.pack("<IIQQQQIIQQ", *[0] * 10)]
    for kind, address, content, link in ((3, 0, names, 0), (11, 0, symbols, 1), (1, 0x1000, data, 0)):
        sections.append(struct.pack("<IIQQQQIIQQ", 0, kind, 0, address, at, len(content), link, 0, 1, 24))
        parts.append(content)
        at += len(content)
    header = (b"\x7fELF\x02\x01" + bytes(10), 3, 62, 1, 0, 0, at, 0, 64, 0, 0, 64, 4, 0)
    path.write_bytes(struct.pack("<16sHHIQQQIHHHHHH", *header) + b"".join(parts) + b"".join(sections))
    return path


def test_the_version_is_read_from_the_file(tmp_path: Path) -> None:
    assert spank.version_of(str(plugin(tmp_path / "pyxis.so", 0x180B05))) == "24.11.5"


@pytest.mark.parametrize("content", [b"", b"\x7fELF\x02\x01", b"#!/bin/sh\n", b"\x7fELF\x02\x01" + b"\xff" * 200])
def test_what_is_no_plugin_has_no_version(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "x.so"
    file.write_bytes(content)

    assert spank.version_of(str(file)) == ""
    assert spank.version_of(str(plugin(tmp_path / "y.so", 0x180B05, b"another"))) == ""


def test_included_files_are_read(tmp_path: Path) -> None:
    made = plugin(tmp_path / "pyxis.so", 0x170B04)
    (tmp_path / "more.d").mkdir()
    (tmp_path / "more.d" / "pyxis.conf").write_text(f"required {made}  execute_entrypoint=0\toverlay=1\n")
    (tmp_path / "loop.conf").write_text("include loop.conf\noptional /gone.so # not there\n")
    stack = tmp_path / "plugstack.conf"
    stack.write_text("include more.d/*\ninclude loop.conf\nrequired lua.so\n# required /x.so\n")
    pyxis = {
        "path": str(made), "arguments": "execute_entrypoint=0 overlay=1", "required": True, "there": True,
        "version": "23.11.4",
    }  # fmt: skip
    gone = {"path": "/gone.so", "arguments": "", "required": False, "there": False, "version": ""}
    packaged = {"path": "lua.so", "arguments": "", "required": True, "there": True, "version": ""}

    assert spank.plugins(["/nowhere", str(stack)]) == [pyxis, gone, packaged]
    assert spank.plugins(["/nowhere"]) == []


def test_a_plugin_without_a_directory_is_found_in_slurms_own(tmp_path: Path) -> None:
    made = plugin(tmp_path / "lua.so", 0x180B05)
    stack = tmp_path / "plugstack.conf"
    stack.write_text("required lua.so\n")

    assert [entry["path"] for entry in spank.plugins([str(stack)], str(tmp_path))] == [str(made)]


def test_required_plugins_that_slurmd_would_not_start_with_are_named(tmp_path: Path) -> None:
    fits, misfit = plugin(tmp_path / "fits.so", 0x180B03), plugin(tmp_path / "misfit.so", 0x170B04)
    text = f"required {fits}\nrequired {misfit}\nrequired /gone.so\noptional /other.so\nrequired lua.so\n"

    assert spank.obstacles("24.11.5-4+deb13u1", text) == [
        f"slurm_plugstack requires {misfit}, which was built for Slurm 23.11.4",
        "slurm_plugstack requires /gone.so, which is not there",
    ]
    assert spank.obstacles("", text) == ["slurm_plugstack requires /gone.so, which is not there"]


def test_pyxis_of_the_own_packages_is_looked_for_once_they_are_installed() -> None:
    pyxis = f"{spank.OF_PACKAGES}spank_pyxis.so"
    text = f"required {pyxis} runtime_path=/scratch/slurm-pyxis\n"

    assert spank.obstacles("24.11.5", text, before_packages=True) == []
    assert spank.obstacles("24.11.5", text) == [f"slurm_plugstack requires {pyxis}, which is not there"]
