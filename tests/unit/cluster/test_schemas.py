"""The JSON Schemas: examples fit, mistakes don't, and the files are current."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from deepopsctl.cluster.schemas import CLUSTER, OUTPUT, PEOPLE
from deepopsctl.model.json_objects import OBJECTS
from tests.support.json_schemas import problems
from tests.support.paths import ROOT
from tests.unit.cli.test_reference import commands

EXAMPLES = sorted(path for name in (CLUSTER, PEOPLE) for path in ROOT.glob(f"inventory/*/{name}.yml"))
NODES = {"names": "ctl1", "roles": ["controller", "compute"]}


def blocks(page: Path) -> Iterator[dict[str, object]]:
    """The YAML of a page that is a whole cluster.yml or people.yml."""
    for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        if block.startswith("schema: 1"):
            yield yaml.safe_load(block)


def test_the_files_and_the_page_are_those_of_the_models() -> None:
    script = str(ROOT / "scripts" / "json-schemas")
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)

    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_examples_fit(path: Path) -> None:
    assert problems(path.stem, yaml.safe_load(path.read_text(encoding="utf-8"))) == []


def test_whole_files_on_pages_fit() -> None:
    contents = [content for page in sorted((ROOT / "docs").rglob("*.md")) for content in blocks(page)]

    assert len(contents) > 2
    for content in contents:
        assert problems(CLUSTER if "nodes" in content else PEOPLE, content) == []


@pytest.mark.parametrize(
    ("part", "at"),
    [
        ({"schema": 2}, "$.schema"),
        ({"nodes": []}, "$.nodes"),
        ({"nodes": [{"names": "n1", "roles": ["worker"]}]}, "$.nodes[0].roles[0]"),
        ({"nodes": [{**NODES, "gpus": {"type": "h100"}}]}, "$.nodes[0].gpus"),
        ({"partition": []}, "'partition' was unexpected"),
        ({"components": ["slrum"]}, "$.components[0]"),
        ({"storage": [{"name": "a", "type": "nfs", "path": "/a", "nfs": {"sqash": "all"}}]}, "$.storage[0].nfs"),
        ({"storage": [{"name": "a", "type": "nfs", "path": "/a", "quota": {"default": {"sp": 1}}}]}, "quota.default"),
        ({"spaces": {"scratsh": {"storage": "a"}}}, "scratsh"),
        ({"spaces": {"scratch": {"storage": "a", "by": "team"}}}, "$.spaces.scratch.by"),
    ],
)
def test_a_mistake_is_found_where_it_stands(part: dict[str, object], at: str) -> None:
    fits = {"schema": 1, "nodes": [NODES]}

    assert problems(CLUSTER, fits) == []
    assert any(at in problem for problem in problems(CLUSTER, {**fits, **part}))


def test_every_command_with_json_has_its_object() -> None:
    described = {name.replace("-", " ") for name in OBJECTS}
    with_json = {
        name for name, command in commands() if any("--json" in parameter.opts for parameter in command.params)
    }

    assert with_json - described == set()


def test_an_object_without_a_key_or_of_no_command_is_refused() -> None:
    assert problems(OUTPUT, {"schema": 1, "command": "docs users", "ok": True, "files": []}) == []
    assert problems(OUTPUT, {"schema": 1, "command": "docs users", "ok": True}) != []
    assert problems(OUTPUT, {"schema": 1, "command": "docs user", "ok": True, "files": []}) != []
    assert problems(OUTPUT, {"schema": 1, "ok": False, "errors": []}) == []
