"""What every role promises: a specification of its variables that is complete, true and documented."""

from __future__ import annotations

import re
import runpy
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.roles.content import ROLES, SITE_WIDE, WITHOUT_DEFAULT, load, options, role_tasks
from tests.support.paths import ROOT

each_role = pytest.mark.parametrize("role", ROLES)


def described(options: Mapping[str, dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Options and those inside them."""
    for name, option in options.items():
        yield name, option
        yield from described(option.get("options") or {})


@each_role
def test_it_is_described_and_every_variable_is_typed_and_described(role: str) -> None:
    for entry in load(f"roles/{role}/meta/argument_specs.yml")["argument_specs"].values():
        assert entry["short_description"]
        assert entry["description"]
    for name, option in described(options(role)):
        assert option.get("type"), name
        assert option["type"] != "list" or option.get("elements"), name
        assert "".join(option["description"]).strip().endswith("."), name


@each_role
def test_every_default_is_the_one_in_the_specification(role: str) -> None:
    specified = {name: option["default"] for name, option in options(role).items() if "default" in option}

    assert load(f"roles/{role}/defaults/main.yml") == specified


@each_role
def test_a_variable_is_required_or_has_a_default(role: str) -> None:
    neither_or_both = [
        name for name, option in options(role).items() if bool(option.get("required")) is ("default" in option)
    ]

    assert neither_or_both == []


def test_a_default_stands_once() -> None:
    """In the defaults of one role, which its specification repeats, or in group_vars where several roles share it."""
    own = [name for role in ROLES for name in load(f"roles/{role}/defaults/main.yml")]

    assert sorted(name for name in {*own, *SITE_WIDE} if [*own, *SITE_WIDE].count(name) > 1) == []


def test_what_stands_in_group_vars_is_shared() -> None:
    """The default of a setting that one role alone reads is in the role."""
    paths = [path for part in ("playbooks", "group_vars") for path in (ROOT / part).rglob("*.yml")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    # other than as a key
    read = {name for name in SITE_WIDE if re.search(rf"(?<![\w.]){name}\b(?!:)", text)}
    of_one = {name for name in SITE_WIDE.keys() - read if sum(name in options(role) for role in ROLES) < 2}

    assert of_one == {
        "ansible_managed",
        # computed
        "environment_http_proxy",
        # next to slurm_user_id
        "slurm_group_id",
        # versions
        *("site_software_easybuild_release", "site_software_spack_version", "site_software_spack_commit"),
        # `packages build pyxis` reads it
        "environment_pyxis",
    }


def test_roles_agree_on_the_type_of_what_they_share() -> None:
    types: dict[str, set[tuple[str, str]]] = {}
    for role in ROLES:
        for name, option in options(role).items():
            types.setdefault(name, set()).add((option["type"], option.get("elements", "")))

    assert [name for name, each in types.items() if len(each) > 1] == []


@each_role
def test_every_variable_bears_the_roles_name_or_is_shared(role: str) -> None:
    defaults = [*load(f"roles/{role}/defaults/main.yml")]
    public = [*defaults, *(name for name in options(role) if name not in SITE_WIDE and name not in WITHOUT_DEFAULT)]
    private = list(load(f"roles/{role}/vars/main.yml"))
    own = [task["register"] for task in role_tasks(role) if "register" in task]
    own += [
        name for task in role_tasks(role) for name in task.get("ansible.builtin.set_fact", {}) if name != "cacheable"
    ]

    assert [name for name in public if not name.startswith(f"{role}_")] == []
    assert [name for name in private if not name.startswith(f"__{role}_")] == []
    assert [name for name in own if not name.removeprefix("__").startswith(f"{role}_")] == []


@each_role
def test_no_role_names_a_group(role: str) -> None:
    words = ("groups[", "group_names", "groups.")
    files = [path for path in (ROOT / "roles" / role).rglob("*") if path.suffix in (".yml", ".j2")]

    assert [path.name for path in files for word in words if word in path.read_text(encoding="utf-8")] == []


write_readmes = runpy.run_path(str(ROOT / "scripts" / "role-readmes"))["main"]


class TestReadmes:
    def test_every_role_has_the_readme_that_its_specification_makes(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert (write_readmes(["--check"]), capsys.readouterr().err) == (0, "")

    def test_a_specification_that_changed_is_noticed_and_written_once(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for directory in ("playbooks", "group_vars"):
            shutil.copytree(ROOT / directory, tmp_path / directory)
        role = shutil.copytree(ROOT / "roles" / "node_common", tmp_path / "roles" / "node_common")
        spec, readme = role / "meta" / "argument_specs.yml", role / "README.md"
        spec.write_text(spec.read_text(encoding="utf-8").replace("own time servers.", "own clocks."))

        assert write_readmes(["--check", str(tmp_path)]) == 1
        assert "own time servers." in readme.read_text(encoding="utf-8")
        assert write_readmes([str(tmp_path)]) == write_readmes([str(tmp_path)]) == 0
        assert "own clocks." in readme.read_text(encoding="utf-8")
        assert capsys.readouterr().err == (
            "roles/node_common/README.md is out of date: run scripts/role-readmes\n"
            "roles/node_common/README.md written\n"
        )
