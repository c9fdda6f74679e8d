"""Commands and pages in messages: as they can be pasted."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepopsctl.cli.main import run_command_line
from deepopsctl.cli.options import DIRECTORY
from deepopsctl.cli.output import filled, pasteable, show_problem, table
from deepopsctl.content import pages
from deepopsctl.errors import ExitCode, InputError
from deepopsctl.text.pages import find_page, section, title_of

PAGE = "# Top\n\n```\n# a comment\n```\n\n## A part: one\n\nText.\n\n### Below\n\nMore.\n\n## Next\n\nEnd.\n"
BOTH = "`deepopsctl{} node resume n1` ends it, then `deepopsctl{} deploy`"
HERE = " -C 'my hpc'"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see `deepopsctl doctor`", "see `deepopsctl -C 'my hpc' doctor`"),
        (BOTH.format("", ""), BOTH.format(HERE, HERE)),
        ("next: deepopsctl deploy environment", "next: deepopsctl -C 'my hpc' deploy environment"),
        ("`deepopsctl -C x deploy`", "`deepopsctl -C x deploy`"),
        ("`deepopsctl init DIR`", "`deepopsctl init DIR`"),
        ("`deepopsctl lab down`", "`deepopsctl lab down`"),
        ("deepopsctl can't do it", "deepopsctl can't do it"),
        ("`deepopsctl` prints", "`deepopsctl` prints"),
        ("see docs/operate/backup.md#a-part", "see `deepopsctl docs show operate/backup#a-part`"),
        ("(docs/testing.md)", "(`deepopsctl docs show testing`)"),
        ("see `docs/reference/settings.md`", "see `deepopsctl docs show reference/settings`"),
        ("/srv/docs/reference/settings.md", "/srv/docs/reference/settings.md"),
    ],
)
def test_a_command_has_the_directory_and_a_page_its_command(text: str, expected: str) -> None:
    token = DIRECTORY.set("my hpc")
    try:
        assert pasteable(text) == expected
    finally:
        DIRECTORY.reset(token)


def test_hints_carry_the_directory_as_it_was_typed_and_none_where_it_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my hpc").mkdir()
    (tmp_path / "my hpc" / "cluster.yml").write_text(
        "schema: 1\nnodes: [{names: n1, roles: [controller, compute]}]\nbilling: {}\n"
    )
    monkeypatch.chdir(tmp_path)

    def hint(*arguments: str) -> str:
        run_command_line([*arguments])
        return capsys.readouterr().err

    # a command that finds no run
    for words in (["-C", "my hpc", "runs", "show"], ["runs", "show", "-C", "my hpc"]):
        assert "deepopsctl -C 'my hpc' deploy" in hint(*words)
    monkeypatch.setenv("DEEPOPSCTL_CLUSTER", "my hpc")
    assert "`deepopsctl deploy`" in hint("runs", "show")
    monkeypatch.delenv("DEEPOPSCTL_CLUSTER")
    monkeypatch.chdir("my hpc")
    assert "`deepopsctl deploy`" in hint("runs", "show")


def test_a_page_is_found_by_what_messages_and_people_write() -> None:
    names = pages()

    for word in ("docs/operate/backup.md", "operate/backup", "backup"):
        assert find_page(word, names) == ("operate/backup", "")
    assert find_page("docs/operate/backup.md#restore-a-controller", names)[1] == "restore-a-controller"
    with pytest.raises(InputError, match="several pages"):
        find_page("doctor", names)
    with pytest.raises(InputError, match="not a page") as error:
        find_page("bakup", names)
    assert error.value.hint
    assert run_command_line(["docs", "show", "no-such-page"]) == ExitCode.INVALID_INPUT


def test_a_section_ends_where_the_next_one_begins() -> None:
    assert title_of(PAGE) == "Top"
    assert section(PAGE, "a-part-one") == "## A part: one\n\nText.\n\n### Below\n\nMore.\n\n"
    assert section(PAGE, "below") == "### Below\n\nMore.\n\n"
    assert section(PAGE, "none") == section(PAGE, "") == PAGE


def test_a_table_wraps_by_column_in_a_terminal_and_not_in_a_pipe() -> None:
    header, rows = ("nodes", "why", "jobs"), [("gpu[01-16],cpu[01-20]", "it has a reason of many words", "3")]

    assert table(header, rows, (2,), 0)[1:] == ["gpu[01-16],cpu[01-20]  it has a reason of many words     3"]
    assert table(header, rows, (2,), 36) == [
        "nodes           why             jobs",
        "gpu[01-16],     it has a           3",
        "cpu[01-20]      reason of many",
        "                words",
    ]
    # a name stays whole, so that it can be copied; a longer word does not
    assert (
        table(header, [("20261128-221629-deploy", "it has a reason", "3")], (2,), 30)[1].split()[0]
        == "20261128-221629-deploy"
    )
    assert all(len(line) <= 72 for line in table(header, [("a" * 50, "b" * 50, "3")], (2,), 72))


def test_a_terminal_breaks_no_word_and_no_command_of_a_message() -> None:
    text = (
        "hint: see grafana_version (`deepopsctl -C hpc docs show grafana`); details: deepopsctl -C hpc runs show 2026"
    )

    assert filled(text, 40) == (
        "hint: see grafana_version\n    (`deepopsctl -C hpc docs show grafana`);\n    details:\n"
        "    deepopsctl -C hpc runs show 2026"
    )
    assert filled("    hint: a b\nshort", 9) == "    hint:\n        a\n        b\nshort"
    assert filled(text, 0) == text


def test_a_wrong_option_is_an_error_in_the_form_of_all_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["runs", "show", "--nonesuch"]) == ExitCode.USAGE
    assert capsys.readouterr().err.splitlines() == [
        "error: no such option '--nonesuch'",
        "hint: usage: deepopsctl runs show [OPTIONS] [RUN]; --help lists the options",
    ]


def test_a_text_of_another_program_is_cut_to_its_end_and_json_has_all(capsys: pytest.CaptureFixture[str]) -> None:
    show_problem("x" * 60_000 + "the reason")

    shown = capsys.readouterr().err
    assert shown.startswith("error: ... (56,010 characters before: --json)\n")
    assert shown.endswith("the reason\n")
    assert len(shown) < 5000
