"""people.yml edited by commands: everything else in it stays as it was written."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest
from click.testing import CliRunner

from deepopsctl.cli.components import choose
from deepopsctl.cli.main import cli
from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.spec import parse_spec
from deepopsctl.content import content_dir
from deepopsctl.environment import edit
from deepopsctl.environment.people import parse_people
from deepopsctl.errors import InputError
from tests.data.people_samples import CLUSTER, KEY
from tests.support.problems import faults, problems_of

TEXT = """\
# our users
schema: 1
first_id: 60001   # agreed with the other cluster
groups:
  - {name: def-curie, gid: 60001, pi: curie}  # chemistry
people:
  # the first one
  - name: alice
    uid: 60002
    groups: [def-curie]   # for now

  - {name: bob, uid: 60003, groups: [def-curie], expires: 2026-12-31}
"""
SPEC = parse_spec(CLUSTER, "cluster.yml")


def test_a_new_person_comes_last_with_the_next_free_id() -> None:
    text = edit.add(TEXT, "people", {"name": "eve", "groups": ["def-curie"], "full_name": "Eve: no"[:3]}, SPEC)

    assert text == TEXT + "  - {name: eve, uid: 60004, groups: [def-curie], full_name: Eve}\n"


def test_a_new_group_keeps_the_comment_of_the_one_before() -> None:
    text = edit.add(TEXT, "groups", {"name": "rrg-curie", "start": "2026-04-01"}, SPEC)

    assert text == TEXT.replace(
        "# chemistry\n", '# chemistry\n  - {name: rrg-curie, gid: 60004, start: "2026-04-01"}\n'
    )


def test_the_first_group_and_person_of_a_new_file() -> None:
    text = edit.add(edit.NEW, "groups", {"name": "def-curie"}, SPEC)
    text = edit.add(text, "people", {"name": "alice", "groups": ["def-curie"], "keys": [KEY]}, SPEC)

    people = parse_people(text, "people.yml", SPEC)
    assert text.startswith(edit.NEW)
    assert [(person.name, person.uid, person.keys) for person in people.people] == [("alice", 60002, (KEY,))]


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "alice", "groups": ["def-curie"]},
        {"name": "eve", "groups": ["nobody-has-this"]},
        {"name": "eve", "uid": "60003", "groups": ["def-curie"]},
        {"name": "eve", "groups": ["def-curie"], "full_name": "{{ lookup('pipe', 'id') }}"},
    ],
)
def test_what_people_yml_cannot_have_is_not_added(entry: dict[str, object]) -> None:
    with pytest.raises(InputError):
        edit.add(TEXT, "people", entry, SPEC)


def test_expire_sets_the_day_and_changes_nothing_else() -> None:
    text = edit.expire(TEXT, ["alice", "bob"], date(2026, 11, 25), SPEC)

    assert text == TEXT.replace("# for now\n", '# for now\n    expires: "2026-11-25"\n').replace(
        "expires: 2026-12-31", 'expires: "2026-11-25"'
    )


def test_expire_names_who_was_probably_meant() -> None:
    (problem,) = problems_of(edit.expire, TEXT, ["alise"], date(2026, 11, 25), SPEC)

    assert problem.hint.startswith("did you mean alice?")


def test_ids_are_given_to_those_without() -> None:
    text = TEXT.replace("    uid: 60002\n", "").replace("gid: 60001, ", "")

    assert edit.give_ids(text, SPEC).splitlines()[4:10] == [
        "  - {name: def-curie, pi: curie, gid: 60001}  # chemistry",
        "people:",
        "  # the first one",
        "  - name: alice",
        "    groups: [def-curie]   # for now",
        "    uid: 60002",
    ]


def test_a_first_id_that_is_none_is_refused_with_its_line() -> None:
    assert faults(edit.give_ids, TEXT.replace("first_id: 60001", "first_id: many"), SPEC) == [
        "people.yml:3: first_id: 'many' is not a valid id"
    ]


class TestImport:
    TABLE = "name,full_name,groups,key,mail\ncarol,Carol C,def-curie+rrg-new,,\ndan,Dan,rrg-new,%s,dan@example.com\n"

    def test_ids_for_many_people_are_found_in_one_pass(self) -> None:
        tried = 0

        class Counted(set[int]):
            def __contains__(self, number: object) -> bool:
                nonlocal tried
                tried += 1
                return super().__contains__(number)

        ids = edit._Ids(parse_people(edit.NEW, "people.yml", SPEC), range(60001, 65001))
        ids._taken = Counted(ids._taken)

        assert max(ids.take() for _ in range(1000)) > 65999
        assert tried < 7000

    def test_adds_everybody_with_ids_and_the_new_groups(self) -> None:
        text, names = edit.import_table(TEXT, self.TABLE % KEY, "new.csv", SPEC, new_groups=True)

        people = parse_people(text, "people.yml", SPEC)
        assert names == ["carol", "dan"]
        assert [group.name for group in people.groups] == ["def-curie", "rrg-new"]
        assert [(person.name, person.groups) for person in people.people[2:]] == [
            ("carol", ("def-curie", "rrg-new")),
            ("dan", ("rrg-new",)),
        ]
        assert len({person.uid for person in people.people} | {group.gid for group in people.groups}) == 6
        assert "# for now\n" in text

    def test_an_id_of_the_table_is_given_to_nobody_else(self) -> None:
        table = "name,groups,uid\ncarol,rrg-new,\ndan,rrg-new,60004\neve,rrg-new,60005\n"

        people = parse_people(edit.import_table(TEXT, table, "new.csv", SPEC, new_groups=True)[0], "people.yml", SPEC)

        assert (people.groups[-1].gid, [person.uid for person in people.people[2:]]) == (60006, [60007, 60004, 60005])

    @pytest.mark.parametrize(
        ("table", "problem"),
        [
            ("name,groups\ncarol,rrg-new\n", "new.csv:2: people[0].groups[0]: there is no group rrg-new"),
            ("name,groups\n\nalice,def-curie\n", "new.csv:3: alice is in people.yml already"),
            ("name,groups\n,def-curie\n", "new.csv:2: people[0].name: '' is not a login name"),
            ("name,groups\n$(id),def-curie\n", "new.csv:2: people[0].name: '$(id)' is not a login name"),
            ("name,groups\n{{ x }},def-curie\n", "new.csv:2: the template marker {{ is not allowed"),
            ("name,group\ncarol,def-curie\n", "new.csv:1: there is no column 'group'"),
            ("name,key,groups,key\n", "new.csv:1: has the column key twice"),
            ("name,groups\ncarol,def-curie,x\n", "new.csv:2: has 3 cells, the header 2"),
            ('name,groups\n"carol,def-curie\n', "new.csv:2: not valid CSV: unexpected end of data"),
            ("name,groups,uid\ncarol,def-curie,0\n", "new.csv:2: people[0].uid: 0 is not between 1000 and 99999"),
        ],
    )
    def test_refuses_with_the_line_of_the_table(self, table: str, problem: str) -> None:
        assert faults(edit.import_table, TEXT, table, "new.csv", SPEC, new_groups=False) == [problem]


class TestCommands:
    @pytest.fixture
    def directory(self, tmp_path: Path) -> ClusterDir:
        (tmp_path / "cluster.yml").write_text(CLUSTER)
        (tmp_path / "inventory").mkdir()
        return ClusterDir(tmp_path)

    @staticmethod
    def run(directory: ClusterDir, *words: str) -> str:
        result = CliRunner().invoke(cli, ["-C", str(directory.path), "people", *words], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    def test_from_an_empty_directory_to_a_list(self, directory: ClusterDir, tmp_path: Path) -> None:
        (tmp_path / "id.pub").write_text(f"{KEY}\n")
        directory.people.touch()

        self.run(directory, "add-group", "def-curie", "--pi", "alice")
        self.run(directory, "add", "alice", "--group", "def-curie", "--key", str(tmp_path / "id.pub"))
        self.run(directory, "expire", "alice", "--on", "2026-01-31")

        (alice,) = json.loads(self.run(directory, "list", "--json"))["people"]
        assert (alice["uid"], alice["keys"], alice["expires"], alice["active"]) == (60002, [KEY], "2026-01-31", False)
        assert "expired 2026-01-31" in self.run(directory, "list")
        assert "environment_people" in directory.hosts.read_text()

    def test_people_whom_no_deploy_reaches_are_a_warning(
        self, directory: ClusterDir, capsys: pytest.CaptureFixture[str]
    ) -> None:
        directory.spec.write_text(f"{CLUSTER}components: [slurm]\n")
        self.run(directory, "add-group", "def-curie")

        assert choose((), directory.cluster(), content_dir()) == ("slurm",)
        assert "there is a people.yml, but `components:` does not list environment" in capsys.readouterr().err

    def test_an_environment_of_which_nothing_is_declared_is_not_deployed_by_name(self, directory: ClusterDir) -> None:
        with pytest.raises(InputError, match="nothing to deploy: no environment in `components:`"):
            choose(("environment",), directory.cluster(), content_dir())

    @pytest.mark.parametrize("more", [b"", b"# M\xfcller\n"])
    def test_a_refused_change_leaves_the_file_alone(self, directory: ClusterDir, more: bytes) -> None:
        self.run(directory, "add-group", "def-curie")
        before = directory.people.read_bytes() + more
        directory.people.write_bytes(before)

        result = CliRunner().invoke(cli, ["-C", str(directory.path), "people", "add", "root", "--group", "def-curie"])

        assert isinstance(result.exception, InputError)
        assert directory.people.read_bytes() == before
