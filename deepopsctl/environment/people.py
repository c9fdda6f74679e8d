"""people.yml: read, check, and turn into People."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

from deepopsctl.environment import values
from deepopsctl.environment.directory import read_authority, read_directory
from deepopsctl.model.cluster import Cluster
from deepopsctl.model.people import FIRST_ID, Group, People, Person, accounts_of
from deepopsctl.text.answers import items, mapping
from deepopsctl.text.problems import Problems, RefusedError
from deepopsctl.text.sections import GroupSection, PeopleFile, PersonSection, SectionReader, dotted
from deepopsctl.text.source import check_markers, read_source
from deepopsctl.text.values import suggest
from deepopsctl.text.yaml_reader import Document, Path, parse_yaml

NAME = "people.yml"
_SHELL = "/bin/bash"


def load_people(path: pathlib.Path, cluster: Cluster) -> People:
    """The people of a cluster; an InputError reports everything wrong with the file."""
    problems = Problems()
    text = read_source(path, path.name, problems)
    problems.raise_if_any()
    people = parse_people(text or "", path.name, cluster)
    if people.directory is None:
        return people
    authority = read_authority(path.parent, people.directory.ca)
    return replace(people, directory=replace(people.directory, ca_text=authority))


def parse_people(text: str, where: str, cluster: Cluster) -> People:
    """The people that the text of a people.yml describes; `where` names it in messages."""
    problems = Problems()
    check_markers(text, where, problems)
    return read_people(parse_yaml(text, where, problems), where, cluster, problems)


def read_people(document: Document | None, where: str, cluster: Cluster, problems: Problems) -> People:
    """The people of a parsed document; an InputError reports everything wrong with it."""
    if document is not None and not isinstance(document.value, dict):
        problems.add(f"{where}:1", "no people.yml: keys are expected", "start with `schema: 1` and `people:`")
        document = None
    people = _Reader(document, where, problems, cluster).read() if document else People()
    problems.raise_if_any()
    return people


class _Reader(SectionReader):
    """Reads entry by entry, so that a problem in one does not hide those of others."""

    def __init__(self, document: Document, where: str, problems: Problems, cluster: Cluster) -> None:
        super().__init__(document, where, problems)
        self.cluster = cluster
        # where each name and each id stands
        self.seen: dict[str | int, Path] = {}
        self.unread_groups = False
        # the group that each Slurm account belongs to
        self.accounts: dict[str, str] = {}

    def read(self) -> People:
        content = self.document.value
        whole = mapping(content)
        top = self.fit(PeopleFile, {key: item for key, item in whole.items() if item is not None}, ())
        first = self.value(("first_id",), values.parse_id, top.first_id, FIRST_ID) if top and top.first_id else FIRST_ID
        groups = list(self._groups(items(whole.get("groups"))))
        known = {group.name for group in groups}
        people = list(self._people(items(whole.get("people")), known))
        for group in groups:
            self._check_account(group.name, self.seen[group.name])
        self._check_users(people)
        numbers = {number: path for number, path in self.seen.items() if isinstance(number, int)}
        directory = read_directory(self, whole.get("directory"), numbers)
        for index, entry in enumerate(directory.accounts if directory else ()):
            self._check_account(entry.account, ("directory", "accounts", index))
        return People(tuple(groups), tuple(people), first, directory)

    def _groups(self, items: Sequence[object]) -> Iterator[Group]:
        for index, item in enumerate(items):
            path: Path = ("groups", index)
            section = self.fit(GroupSection, _without_empty(item), path)
            if section is None:
                self.unread_groups = True
                continue
            start, end = (
                self.value((*path, key), values.parse_date, text, None) if text else None
                for key, text in (("start", section.start), ("end", section.end))
            )
            if start and end and end <= start:
                self._refuse((*path, "end"), f"{end} is not after the start, {start}", "correct one of them")
            group = Group(
                name=self.value((*path, "name"), values.check_group, section.name, section.name),
                gid=self.value((*path, "gid"), values.parse_id, section.gid, 0),
                pi=self.value((*path, "pi"), values.check_login, section.pi, "") if section.pi else "",
                start=start,
                end=end,
                shares=self.value((*path, "shares"), values.parse_shares, section.shares, 0) if section.shares else 0,
            )
            self._once(path, group.name, group.gid, "gid")
            yield group

    def _people(self, items: Sequence[object], groups: set[str]) -> Iterator[Person]:
        for index, item in enumerate(items):
            path: Path = ("people", index)
            section = self.fit(PersonSection, _without_empty(item), path)
            if section is None:
                continue
            person = self._person(section, path)
            self._once(path, person.name, person.uid, "uid")
            self._check_groups(person, path, groups)
            yield person

    def _person(self, section: PersonSection, path: Path) -> Person:
        if not section.uid:
            hint = "`deepopsctl people ids` writes one for everybody without, `people add` for a new person"
            self._refuse((*path, "name"), f"{section.name} has no uid", hint)
        return Person(
            name=self.value((*path, "name"), values.check_login, section.name, section.name),
            uid=self.value((*path, "uid"), values.parse_id, section.uid, 0) if section.uid else 0,
            groups=tuple(section.groups),
            full_name=self.value((*path, "full_name"), values.check_full_name, section.full_name, ""),
            mail=self.value((*path, "mail"), values.check_mail, section.mail, "") if section.mail else "",
            keys=tuple(
                self.value((*path, "keys", number), values.check_public_key, key, "")
                for number, key in enumerate(section.keys)
            ),
            shell=self.value((*path, "shell"), values.check_shell, section.shell, _SHELL) if section.shell else _SHELL,
            expires=self.value((*path, "expires"), values.parse_date, section.expires, None)
            if section.expires
            else None,
            sponsor=self.value((*path, "sponsor"), values.check_login, section.sponsor, "") if section.sponsor else "",
        )

    def _once(self, path: Path, name: str, number: int, key: str) -> None:
        """A name and an id stand for one group, or for one person and the group of the same name."""
        for what, word in ((name, "name"), (number, key)):
            first = self.seen.setdefault(what, path)
            if what and first != path:
                message = f"{what} is already at {self.at(first)} ({dotted(first)})"
                self._refuse((*path, word), message, "a person has a group of the same name and id; choose another one")

    def _check_groups(self, person: Person, path: Path, known: set[str]) -> None:
        for index, name in enumerate(person.groups):
            if name not in known and not self.unread_groups:
                hint = suggest(name, sorted(known)) if known else "declare it under `groups:`"
                self._refuse((*path, "groups", index), f"there is no group {name}", hint)
            elif name in person.groups[:index]:
                self._refuse((*path, "groups", index), f"{name} is listed twice", "list every group once")

    def _check_account(self, name: str, path: Path) -> None:
        declared = {account.name.lower() for account in self.cluster.policy.accounts}
        both = [account for account in accounts_of(name) if account in declared]
        if both:
            message = f"the account {both[0]} is declared in cluster.yml as well (`accounts:`)"
            self._refuse(path, message, "declare it in one of the two files")
        shared = next((each for each in accounts_of(name) if self.accounts.setdefault(each, name) != name), "")
        if shared:
            hint = "a group has its own account, and one with _cpu and one with _gpu: choose another name"
            self._refuse(path, f"the account {shared} belongs to the group {self.accounts[shared]} as well", hint)

    def _check_users(self, people: Sequence[Person]) -> None:
        defaults = {user.name: user.account for user in self.cluster.policy.all_users() if user.default}
        for person in people:
            path = self.seen[person.name]
            if person.name and person.name == self.cluster.access.user:
                message = f"{person.name} is the user that deepopsctl connects as (`cluster.user` of cluster.yml)"
                self._refuse((*path, "name"), message, "give the person another name, or connect as another user")
            elif person.name in defaults:
                account = defaults[person.name]
                message = f"{person.name} has a default account in cluster.yml (`users:`, {account})"
                self._refuse((*path, "groups"), message, "remove `default` there: here it is the first group")

    def _refuse(self, path: Path, message: str, hint: str) -> None:
        self.problems.refuse(self.at(path), dotted(path), RefusedError(message, hint))


def _without_empty(item: object) -> object:
    return {key: value for key, value in item.items() if value is not None} if isinstance(item, dict) else item
