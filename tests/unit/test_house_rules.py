"""Rules of the house that no linter knows."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import ROOT

# what a checker is told not to say, and what follows it on the line
SILENCED = re.compile(
    r"# (?:noqa: ?[A-Z0-9, ]*[A-Z0-9]|type: ignore(?:\[[a-z, -]+\])?"
    r"|shellcheck disable=[A-Z0-9,]+|pragma: no cover)(.*)"
)


def tracked(*directories: str) -> list[Path]:
    """Files that git knows, links apart."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *directories], cwd=ROOT, capture_output=True, text=True, check=True
    )
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def is_code(path: Path) -> bool:
    return path.suffix in (".py", ".sh", ".yml") or path.read_bytes().startswith(b"#!")


def unexplained(text: str) -> list[str]:
    """Lines that silence a checker without a reason of two words or more."""
    result = []
    for line in text.splitlines():
        match = SILENCED.search(line)
        if match and len(re.findall(r"\w+", match[1])) < 2:
            result.append(line.strip())
    return result


def test_a_checker_is_silenced_with_a_reason_next_to_it() -> None:
    files = [path for path in tracked() if is_code(path) and path != Path(__file__)]
    result = {path.relative_to(ROOT).as_posix(): unexplained(path.read_text(encoding="utf-8")) for path in files}

    assert {name: lines for name, lines in result.items() if lines} == {}
    assert len(files) > 800


@pytest.mark.parametrize(
    ("line", "is_reported"),
    [
        ("x = 1  # noqa: S105", False),
        ("x = 1  # noqa: S105, S106", False),
        ("x = 1  # noqa: S105 (why)", False),
        ("x = 1  # noqa: S105 (a word for people, no secret)", True),
        ("x = y  # type: ignore[arg-type]", False),
        ("x = y  # type: ignore[arg-type]  # none is asked", True),
        ("# shellcheck disable=SC2086", False),
        ("# shellcheck disable=SC2086  # a list of words", True),
    ],
)
def test_a_reason_is_two_words_or_more(line: str, is_reported: bool) -> None:
    assert (unexplained(line) == []) is is_reported


def test_a_page_that_code_refers_to_exists() -> None:
    references = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in tracked("deepopsctl", "plugins", "roles", "playbooks", "scripts", "Makefile", "pyproject.toml")
        for name in re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text(encoding="utf-8", errors="replace"))
    }

    assert [reference for reference in sorted(references) if not (ROOT / reference[1]).is_file()] == []
    assert len(references) > 20


def test_decisions_have_context_decision_and_consequences() -> None:
    pages = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs/develop/decisions").glob("*.md")}
    index = pages.pop("index")

    sections = {page: re.findall(r"^## (.*)", text, re.MULTILINE) for page, text in pages.items()}
    assert sections == {page: ["Context", "Decision", "Consequences"] for page in pages}
    assert set(re.findall(r"\]\(([\w-]+)\.md\)", index)) == set(pages)


def test_what_both_sides_run_is_linked_once_in_one_place() -> None:
    links = [path for path in (ROOT / "deepopsctl").rglob("*.py") if path.is_symlink()]
    targets = [path.resolve() for path in links]

    assert {path.parent.relative_to(ROOT).as_posix() for path in links} == {"deepopsctl/node_programs/_shared"}
    assert len(targets) == len(set(targets))


def test_no_link_has_become_a_copy() -> None:
    """Some editors replace a link that they change by a file, and the other side keeps the old text."""
    firsts = {path.read_text(encoding="utf-8").partition("\n")[0] for path in (ROOT / "plugins").rglob("*.py")} - {""}
    shared = (ROOT / "deepopsctl/node_programs/_shared").glob("*.py")

    assert [
        path.name
        for path in shared
        if not path.is_symlink() and path.read_text(encoding="utf-8").partition("\n")[0] in firsts
    ] == []


def test_every_filter_is_a_function_of_its_name() -> None:
    sources = {
        path.stem: path.read_text(encoding="utf-8") for path in tracked("plugins/filter") if path.suffix == ".py"
    }
    filters = [name for text in sources.values() for name in re.findall(r"^def ([a-z]\w*)", text, re.MULTILINE)]

    assert {name for name, text in sources.items() if "filters_of(globals())" not in text} == set()
    assert len(filters) == len(set(filters)) > 90
