"""Wheels unpacked on a node: whole or not at all, found again, mended, removed."""

from __future__ import annotations

import json
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.support.node_modules import Call, FailedError, plugin

# an entry as in versions.yml, and where the wheel is
Wheel = tuple[dict[str, Any], str]


class Node:
    """A node's directories, and the module run on it."""

    def __init__(self, root: Path, state: Path) -> None:
        self.root, self.directory = root, root / "lib" / "thing-1"
        self.record = state / "records" / "c.s.json"

    def run(
        self, libraries: dict[str, Any], wheels: dict[str, str], *, check: bool = False, **more: Any
    ) -> dict[str, Any]:
        options = {"component": "c", "step": "s", "digest": "d", "path": str(self.directory), **more}
        call = Call({**options, "libraries": libraries, "wheels": wheels}, check=check)
        return call.run(plugin("modules", "python_wheels"))

    def bring(self, wheel: Wheel) -> dict[str, Any]:
        """The call that has the wheel `one`."""
        return self.run({"one": wheel[0]}, {"one": wheel[1]})

    def ask(self, wheel: Wheel) -> dict[str, Any]:
        """The call that asks whether it is there."""
        return self.run({"one": wheel[0]}, {})


@pytest.fixture
def node(tmp_path: Path, state: Path) -> Node:
    return Node(tmp_path, state)


def wheel(path: Path, files: dict[str, str]) -> Wheel:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    digest = sha256(path.read_bytes()).hexdigest()
    return {"package": path.stem, "version": "1", "wheels": {"any": {"platform": "any", "sha256": digest}}}, str(path)


@pytest.fixture
def one(tmp_path: Path) -> Wheel:
    return wheel(tmp_path / "one.whl", {"one/__init__.py": "x = 1", "one/data.bin": "no", "one.dist-info/LICENSE": "l"})


def test_a_node_says_which_wheels_it_lacks_and_unpacks_what_is_brought(node: Node, one: Wheel) -> None:
    checked = node.run({"one": one[0]}, {}, check=True)
    assert (checked["changed"], [entry["action"] for entry in checked["changes"]]) == (True, ["write"])
    assert not node.directory.exists()
    asked = node.ask(one)
    done = node.bring(one)
    again = node.ask(one)

    assert (asked["missing"], asked["changed"]) == (["one"], False)
    assert done["changed"]
    assert (again["missing"], again["changed"]) == ([], False)
    result = {path.relative_to(node.directory).as_posix() for path in node.directory.rglob("*") if path.is_file()}
    assert result == {"one/__init__.py", "one.dist-info/LICENSE", "WHEELS.json"}
    assert node.directory.stat().st_mode & 0o777 == 0o755


def test_a_file_that_was_edited_is_noticed_and_fixed(node: Node, one: Wheel) -> None:
    node.bring(one)
    (node.directory / "one" / "__init__.py").write_text("x = 2", encoding="utf-8")

    assert node.ask(one)["missing"] == ["one"]
    assert node.bring(one)["changed"]
    assert (node.directory / "one" / "__init__.py").read_text(encoding="utf-8") == "x = 1"
    # the gate sees every file
    record = json.loads(node.record.read_text(encoding="utf-8"))
    assert str(node.directory / "one" / "__init__.py") in record["items"]["files"]


def test_another_wheel_than_the_pinned_one_leaves_the_node_as_it_was(node: Node, one: Wheel, tmp_path: Path) -> None:
    other = wheel(tmp_path / "other.whl", {"one/__init__.py": "x = 3"})
    node.bring(one)
    (node.directory / "one" / "__init__.py").write_text("x = 2", encoding="utf-8")

    with pytest.raises(FailedError, match="not the wheel that is pinned"):
        node.run({"one": one[0]}, {"one": other[1]})

    assert (node.directory / "one" / "__init__.py").read_text(encoding="utf-8") == "x = 2"
    assert list(node.directory.parent.iterdir()) == [node.directory]


def test_a_wheel_that_leads_out_of_its_directory_is_refused(node: Node, tmp_path: Path) -> None:
    bad = wheel(tmp_path / "bad.whl", {"../../evil.py": "x"})

    with pytest.raises(FailedError, match="has a file"):
        node.run({"bad": bad[0]}, {"bad": bad[1]})
    assert not (node.root / "evil.py").exists()


def test_another_version_takes_the_place_of_the_one_before(node: Node, one: Wheel) -> None:
    node.bring(one)
    before, node.directory = node.directory, node.directory.with_name("thing-2")

    done = node.bring(one)

    assert [(entry["action"], entry["name"]) for entry in done["changes"]] == [
        ("write", str(node.directory)),
        ("remove", str(before)),
    ]
    assert not before.exists()


def test_what_is_no_longer_wanted_goes_with_its_record(node: Node, one: Wheel) -> None:
    node.bring(one)

    gone = node.run({}, {}, state="absent", path=None)

    assert [entry["action"] for entry in gone["changes"]] == ["remove"]
    assert not node.directory.exists()
    assert not node.record.exists()
    assert node.run({}, {}, state="absent", path=None)["changed"] is False


def test_a_processor_without_a_wheel_is_reported_of(node: Node, one: Wheel) -> None:
    foreign = {**one[0], "wheels": {"sparc": one[0]["wheels"]["any"]}}

    with pytest.raises(FailedError, match="there is no wheel of one for") as refused:
        node.run({"one": foreign}, {}, hint="set monitoring_gpu_exporter")

    assert refused.value.data["hint"] == "set monitoring_gpu_exporter"
