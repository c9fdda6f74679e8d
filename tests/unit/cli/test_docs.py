"""What the README and docs/ tell people to type is what the program takes: commands, and YAML for their files."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
import yaml

from deepopsctl.cli.main import cli, run_command_line
from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.settings import known_names, require_settings
from deepopsctl.cluster.spec import parse_spec
from deepopsctl.content import content_dir
from deepopsctl.environment.people import parse_people
from deepopsctl.text.node_sets import expand
from deepopsctl.text.pages import section, slug, title_of
from deepopsctl.text.sections import ClusterFile
from tests.support.paths import ROOT

PAGES = (ROOT / "README.md", ROOT / "docs" / "llms.txt", *sorted((ROOT / "docs").rglob("*.md")))
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```", re.MULTILINE | re.DOTALL)
_LINE = re.compile(
    r"^ *(?:\w+\$ |\$ )?(?P<line>(?:DEEPOPSCTL_\w+=\S+ )?deepopsctl (?!with |turns |does )(?:.*\\\n)*.*)$", re.MULTILINE
)
_INDENTED = re.compile(r"(?:^    .*\n)+", re.MULTILINE)
_INLINE = re.compile(r"(?<!`)`(?P<line>deepopsctl [^`]+)`(?!`)")
# a cluster that has what the examples on the pages name
CLUSTER = """
schema: 1
cluster: {name: hpc, user: ubuntu}
nodes:
  - {names: ctl1, addresses: 192.0.2.1, roles: [controller, nfs_server]}
  - {names: nfs1, addresses: 192.0.2.3, roles: [nfs_server]}
  - {names: login1, addresses: 192.0.2.2, roles: [login]}
  - {names: "gpu[01-16]", addresses: "192.0.2.[11-26]", roles: [compute], gpus: {type: h100, count: 8}}
"""
# no file of a cluster directory: playbooks, roles, hardware.yml, Vagrant's sizes, a part of an entry, another tool's
OTHER_YAML = re.compile(
    r"^- name: |^- \{names: .*boards:|^slurm_controller: \{memory_mb|^archives:|^plugin: ", re.MULTILINE
)
CLUSTER_KEYS = {field.alias or name for name, field in ClusterFile.model_fields.items()}
# files that a reader has, and that a command opens when it is parsed
READERS_FILES = ("alice.pub",)
# names of secrets are a site's; they are in no list of settings
SECRET_NAMES = frozenset({"storage_secrets", "monitoring_alert_secrets"})


class Example(NamedTuple):
    """A line or a block of a page, and where it is; `typed` lines stand in a block, others stand in a sentence."""

    where: str
    text: str
    typed: bool = True


def yaml_blocks() -> Iterator[Example]:
    for page in PAGES:
        text = page.read_text("utf-8")
        for match in _FENCE.finditer(text):
            if match["language"] == "yaml":
                yield Example(place(page, text, match.start("text")), textwrap.dedent(match["text"]))


def command_lines() -> Iterator[Example]:
    for page in PAGES:
        text = page.read_text("utf-8")
        blocks = [(match.start("text"), match["text"]) for match in _FENCE.finditer(text)]
        blocks += [(match.start(), match[0]) for match in _INDENTED.finditer(text)]
        typed = {start + line.start("line"): line["line"] for start, block in blocks for line in _LINE.finditer(block)}
        for position, line in typed.items():
            yield Example(place(page, text, position), line)
        for match in _INLINE.finditer(text):
            if match.start("line") not in typed:
                yield Example(place(page, text, match.start()), match["line"], typed=False)


def template_lines() -> Iterator[Example]:
    """The commands of the templates of pipelines."""
    for page in sorted((ROOT / "inventory" / "gitops").iterdir()):
        text = page.read_text("utf-8")
        assert yaml.safe_load(text)
        for match in re.finditer(
            r"^(?!#).*?(?P<line>deepopsctl (?:inventory|plan|deploy|validate).*)$", text, re.MULTILINE
        ):
            yield Example(place(page, text, match.start("line")), match["line"])


def place(page: Path, text: str, position: int) -> str:
    return f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, position) + 1}"


def words_of(line: str) -> list[str]:
    """The words of the first command of a line, as a shell makes them, without `deepopsctl`."""
    lexer = shlex.shlex(line.replace("\\\n", " ").replace("\n", " "), posix=True, punctuation_chars="|;>&()")
    lexer.commenters, lexer.whitespace_split = "#", True
    words = list(lexer)
    end = next((index for index, word in enumerate(words) if re.fullmatch(r"[|;>&()]+", word)), len(words))
    return words[words.index("deepopsctl") + 1 : end]


# a line that shows a form has optional parts, and is nothing to type
LINES = [
    example
    for example in (*command_lines(), *template_lines())
    if not re.search(r"\[-|\[OPTIONS\]|\.\.\.|\$\(| COMMAND", example.text)
]
INITS = [
    example for example in LINES if example.typed and re.search(r"\binit .*--(controller|from inventory)", example.text)
]
BLOCKS = [example for example in yaml_blocks() if not OTHER_YAML.search(example.text)]


def parse(words: list[str]) -> None:
    """Parse a command line as the program does, without running it."""
    command: click.Command = cli
    parent: click.Context | None = None
    while True:
        parent = command.make_context(command.name, list(words), parent=parent)
        if not isinstance(command, click.Group):
            return
        _, following, words = command.resolve_command(parent, [*parent._protected_args, *parent.args])
        assert following is not None
        command = following


def test_the_pages_have_commands_and_yaml() -> None:
    assert len([example for example in LINES if example.typed]) > 120
    assert len(INITS) > 5
    assert len(BLOCKS) > 35


@pytest.mark.parametrize("example", LINES, ids=lambda example: example.where)
def test_a_command_on_a_page_is_one_that_the_program_takes(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in READERS_FILES:
        (tmp_path / name).touch()
    try:
        parse(words_of(example.text))
    except click.ClickException as error:
        # a sentence names a command without all that it needs
        is_short = isinstance(error, click.MissingParameter | click.exceptions.NoArgsIsHelpError) or (
            "requires an argument" in error.message
        )
        if example.typed or not is_short:
            pytest.fail(f"{example.text}: {error.format_message()}")


@pytest.mark.parametrize("example", INITS, ids=lambda example: example.where)
def test_an_init_on_a_page_makes_a_cluster_directory_that_inventory_accepts(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "inventory").symlink_to(ROOT / "inventory")
    for sample in (ROOT / "tests" / "data" / "node_sources").iterdir():
        (tmp_path / sample.name).symlink_to(sample)
    monkeypatch.chdir(tmp_path)
    words = words_of(example.text)
    directory = words[1]

    assert run_command_line(words) == 0
    assert run_command_line(["-C", directory, "inventory"]) == 0


@pytest.mark.parametrize("example", BLOCKS, ids=lambda example: example.where)
def test_yaml_on_a_page_is_valid_in_the_file_that_it_is_for(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = yaml.safe_load(example.text)
    if {"people", "directory"} & set(document):
        parse_people(example.text, example.where, parse_spec(CLUSTER, "cluster.yml"))
    elif set(document) <= CLUSTER_KEYS:
        parse_spec(in_a_cluster(document), example.where)
    else:
        monkeypatch.chdir(tmp_path)
        assert run_command_line(["init", "hpc", "--controller", "ctl1=192.0.2.1", "--compute", "gpu01=192.0.2.11"]) == 0
        directory = ClusterDir.open(tmp_path / "hpc")
        directory.settings.write_text(example.text, "utf-8")
        require_settings(directory, content_dir())
        assert set(document) <= known_names(content_dir()) | SECRET_NAMES


def in_a_cluster(document: dict[str, Any]) -> str:
    """The keys of a page in a cluster that has what they name."""
    whole = yaml.safe_load(CLUSTER)
    own = document.get("nodes", [])
    if own:
        listed = {name for node in own for name in expand(node["names"])}
        others = [node for node in whole["nodes"] if listed.isdisjoint(expand(node["names"]))]
        document = {**document, "nodes": [*others, *own]}
    return yaml.safe_dump({**whole, **document})


def dead_links(page: Path) -> list[str]:
    """Relative links that lead to no file, or to no heading of it; mkdocs finds those of docs/."""
    dead = []
    for target in re.findall(r"\]\(([^)\s:]+)\)", page.read_text(encoding="utf-8")):
        name, _, anchor = target.partition("#")
        path = (page.parent / name) if name else page
        if not path.exists() or (anchor and not section_of(path.read_text(encoding="utf-8"), anchor)):
            dead.append(target)
    return dead


def section_of(text: str, anchor: str) -> str:
    part = section(text, anchor)
    return "" if part == text and slug(title_of(text)) != anchor else part


def test_no_link_of_a_page_outside_the_site_is_dead(tmp_path: Path) -> None:
    pages = [path for pattern in ("*.md", "inventory/**/*.md", "examples/**/*.md") for path in ROOT.glob(pattern)]
    assert {str(page.relative_to(ROOT)): dead for page in pages if (dead := dead_links(page))} == {}
    (tmp_path / "x.md").write_text(
        "# X\n[a](x.md#x) [b](y.md) [c](x.md#z) [d](https://example.com/#q)\n", encoding="utf-8"
    )
    assert dead_links(tmp_path / "x.md") == ["y.md", "x.md#z"]
