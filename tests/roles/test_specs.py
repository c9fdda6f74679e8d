"""What every role promises: a specification of its variables that is complete, true and documented."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.roles.content import ROLES, load, options, role_tasks
from tests.support.paths import ROOT

SCRIPT = ROOT / "scripts" / "role-readmes"

each_role = pytest.mark.parametrize("role", ROLES)


def described(options: Mapping[str, dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Options and those inside them."""
    for name, option in options.items():
        yield name, option
        yield from described(option.get("options") or {})


def test_there_are_roles() -> None:
    assert {"slurm_conf", "slurmctld", "slurmd", "slurmdbd"} <= set(ROLES)


@each_role
def test_it_has_a_description(role: str) -> None:
    for entry in load(f"roles/{role}/meta/argument_specs.yml")["argument_specs"].values():
        assert entry["short_description"]
        assert entry["description"]


@each_role
def test_every_variable_is_typed_and_described(role: str) -> None:
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


@each_role
def test_every_variable_bears_the_roles_name(role: str) -> None:
    public = [*options(role), *load(f"roles/{role}/defaults/main.yml")]
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


class TestReadmes:
    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=300)

    @pytest.fixture
    def content(self, tmp_path: Path) -> Path:
        """A copy of the roles and playbooks with their READMEs just written."""
        for part in ("roles", "playbooks"):
            shutil.copytree(ROOT / part, tmp_path / part)
        assert self.run(str(tmp_path)).returncode == 0
        return tmp_path

    def test_every_role_has_the_readme_that_its_specification_makes(self) -> None:
        done = self.run("--check")

        assert done.returncode == 0, done.stderr

    def test_writing_them_again_changes_nothing(self, content: Path) -> None:
        done = self.run(str(content))

        assert (done.returncode, done.stderr) == (0, "")

    def test_every_variable_is_in_the_table(self, content: Path) -> None:
        for role in ROLES:
            text = (content / "roles" / role / "README.md").read_text(encoding="utf-8")
            assert [name for name, _option in described(options(role)) if f"{name}`" not in text] == []

    def test_a_specification_that_changed_is_noticed_and_nothing_is_written(self, content: Path) -> None:
        spec = content / "roles" / "node_common" / "meta" / "argument_specs.yml"
        spec.write_text(spec.read_text(encoding="utf-8").replace("Nodes to follow.", "Whom to follow."))
        readme = (content / "roles" / "node_common" / "README.md").read_text(encoding="utf-8")

        done = self.run("--check", str(content))

        assert done.returncode == 1
        assert done.stderr == "roles/node_common/README.md is out of date: run scripts/role-readmes\n"
        assert (content / "roles" / "node_common" / "README.md").read_text(encoding="utf-8") == readme

    def test_an_option_it_does_not_know_is_refused(self) -> None:
        assert self.run("--chekc").returncode == 2
