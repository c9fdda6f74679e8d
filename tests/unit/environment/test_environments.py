"""Environments as data: what the setting may have, what a lock is made of, and what of it nodes get."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from deepopsctl.environment import environments
from deepopsctl.environment.environments import Environment, Lock
from deepopsctl.environment.wheels import Target, Wheel
from deepopsctl.errors import DeepOpsError, InputError
from deepopsctl.text.problems import RefusedError
from tests.support.problems import problems_of
from tests.support.wheels import index, make

__all__ = ["index"]

NODE = Target("3.13", "x86_64", 41)
UV = {"version": "0.13.9", "wheels": {"x86_64": {"platform": "manylinux_2_17_x86_64", "sha256": "f" * 64}}}
DL = Environment("dl", ("fast<2",))


def locked(index: Path, cache: Path, *known: Lock, environment: Environment = DL) -> Lock:
    lock = environments.make_lock(environment, NODE, UV, known, cache)
    assert lock is not None
    return lock


def wheel(file: str) -> Wheel:
    return Wheel(file, sha256(file.encode()).hexdigest())


FAST, PLAIN = "fast-1.0-cp313-cp313-manylinux_2_28_x86_64.whl", "plain-1.0-py3-none-any.whl"
LOCK = Lock("dl", "2026.12", NODE, DL.packages, wheel("uv-0.13.9-py3-none-any.whl"), (wheel(FAST), wheel(PLAIN)))


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("--index-url=https://example.com/", "environments: dl"),
        ("plain @ https://example.com/plain-1.0.tar.gz", "environments: dl"),
        ("/tmp/plain", "environments: dl"),
    ],
)
def test_a_requirement_is_a_name_with_versions(text: str, where: str) -> None:
    assert problems_of(lambda: environments.declared({"dl": {"packages": ["plain", text]}}))[0].where == where


def test_everything_wrong_is_named_at_once() -> None:
    setting = {
        "python": {"packages": ["a"]},
        "../x": {"packages": ["a"]},
        "b": {"packages": "a"},
        "c": {"packages": []},
    }
    setting |= {"d": {"packages": ["a"], "python": "2.7"}, "e": {"packages": ["a"], "default": "../.."}}

    named = problems_of(lambda: environments.declared(setting))

    assert [each.where.removeprefix("environments: ") for each in named] == ["python", "../x", "b", "c", "d", "e"]
    assert environments.declared({"dl": {"packages": ["B", "a_c"]}}) == {"dl": Environment("dl", ("a-c", "b"))}


def test_a_lock_is_read_as_it_was_written_and_a_changed_one_is_refused(tmp_path: Path) -> None:
    path = environments.save_lock(tmp_path, LOCK)

    assert environments.read_locks(tmp_path) == [LOCK]
    path.write_text(LOCK.text() + "x @ https://example.com/x.whl\n", encoding="utf-8")
    assert problems_of(environments.read_lock, path)[0].where == f"environments/dl/{path.name}:7"
    path.write_text("plain==1.0\n", encoding="utf-8")
    with pytest.raises(InputError, match="first lines"):
        environments.read_lock(path)


def test_other_wheels_are_a_new_version_and_locked_ones_come_back_by_their_hash(index: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    make(index, "fast", "1.0", "cp313-cp313-manylinux_2_28_x86_64", requires="plain")
    plain = make(index, "plain", "1.0", "py3-none-any")
    first = locked(index, cache)

    assert [each.file for each in first.wheels] == [FAST, PLAIN]
    assert environments.make_lock(DL, NODE, UV, [first], cache) is None
    other_text = replace(DL, packages=("fast<3", "plain"))
    assert locked(index, cache, first, environment=other_text) == replace(first, packages=other_text.packages)
    make(index, "plain", "1.1", "py3-none-any")
    assert locked(index, cache, first).version == f"{first.version}.1"
    # a version that was removed does not come back as another one
    assert locked(index, cache, replace(first, version=f"{first.version}.3")).version == f"{first.version}.4"

    fetched = environments.fetch_locked(first.wheels, NODE, tmp_path / "another")
    assert sorted(fetched) == [FAST, PLAIN]
    plain.write_bytes(b"another content")
    fetched[PLAIN].unlink()
    with pytest.raises(DeepOpsError):
        environments.fetch_locked(first.wheels, NODE, tmp_path / "another")


def test_a_lock_is_outdated_by_its_setting() -> None:
    assert not environments.is_outdated(DL, [LOCK])
    assert environments.is_outdated(DL, [])
    assert environments.is_outdated(replace(DL, packages=("fast<2", "more")), [LOCK])
    assert environments.is_outdated(replace(DL, python="3.12"), [LOCK])


def test_nodes_get_every_version_and_the_newest_is_the_default(tmp_path: Path) -> None:
    newer = replace(LOCK, version=f"{LOCK.version}.10")
    for each in (LOCK, newer, replace(LOCK, name="gone")):
        environments.save_lock(tmp_path, each)
    setting = {"dl": {"packages": ["fast<2"]}}
    of_site = {"python/3.13.1": {"prefix": "/opt/python"}, "python/3.1": {"prefix": "/x"}}

    versions = environments.on_nodes(setting, tmp_path, of_site)

    assert [(each["version"], each["default"]) for each in versions] == [(newer.version, True), (LOCK.version, False)]
    assert {each["interpreter"] for each in versions} == {"/opt/python/bin/python3.13"}
    older = {"dl": {"packages": ["fast<2"], "default": LOCK.version}}
    assert [each["default"] for each in environments.on_nodes(older, tmp_path, {})] == [False, True]
    # the default is the last file: its module is there
    assert environments.templates(versions, "/e")[-1]["dest"] == "/e/modulefiles/dl/.version"
    with pytest.raises(RefusedError, match="new: has no lock"):
        environments.on_nodes({"new": {"packages": ["a"]}}, tmp_path, {})


def test_a_default_that_stays_declared_is_not_removed(tmp_path: Path) -> None:
    declared = {"dl": DL}

    with pytest.raises(InputError, match="is the default version"):
        environments.removable([LOCK.module], declared, [LOCK])
    with pytest.raises(InputError, match="is not a version"):
        environments.removable(["../../etc/2026.12"], declared, [LOCK])
    assert environments.removable([LOCK.module, LOCK.module], {}, [LOCK]) == [LOCK.module]
    environments.save_lock(tmp_path, LOCK)
    environments.remove_locks(tmp_path, [LOCK.module])
    assert environments.read_locks(tmp_path) == []
    assert not (tmp_path / "environments" / "dl").exists()
