"""The Slurm accounts of people, as role slurm_accounts takes them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from typing import Any

from deepopsctl.model.people import CLOSED_ACCOUNT, CLOSED_USER, accounts_of
from deepopsctl.text.header import MANAGED_HEADER

Entry = Mapping[str, Any]


def with_people(policy: Entry, people: Mapping[str, Iterable[Entry]], today: date) -> dict[str, Any]:
    """The policy of cluster.yml with the accounts and users of people.yml.

    Each group is an account with one for jobs on CPUs and one for jobs on GPUs below it; its people may charge all
    three. A group out of its time and a person who has expired submit no jobs; what runs continues.
    """
    groups, everybody = list(people["groups"]), list(people["people"])
    return {
        **policy,
        "accounts": [
            *policy.get("accounts", ()),
            *(account for group in groups for account in _accounts(group, today)),
        ],
        "users": [*policy.get("users", ()), *(user for person in everybody for user in _users(person, today))],
    }


def expired(people: Mapping[str, Iterable[Entry]], today: date) -> list[str]:
    """The names of everybody whose account has expired."""
    return [person["name"] for person in people["people"] if _is_over(person.get("expires"), today)]


def dates(people: Mapping[str, Iterable[Entry]], cluster: str) -> dict[str, Any]:
    """Who opens or closes on which day, for the program that does so between deploys."""
    groups = [group for group in people["groups"] if group.get("start") or group.get("end")]
    leaving = [person for person in people["people"] if person.get("expires")]
    return {
        "cluster": cluster,
        "groups": [_keys_of(group, "name", "start", "end", "shares") for group in groups],
        "people": [_keys_of(person, "name", "expires") for person in leaving],
    }


def _keys_of(entry: Entry, *keys: str) -> dict[str, Any]:
    return {key: entry[key] for key in keys if entry.get(key)}


def sorting_table(people: Mapping[str, Iterable[Entry]]) -> str:
    """Groups, and the groups of people, as job_submit.lua reads them."""
    groups = "".join(f'  ["{group["name"]}"] = true,\n' for group in people["groups"] if _is_plain(group["name"]))
    everybody = ((person["name"], list(filter(_is_plain, person["groups"]))) for person in people["people"])
    of_people = "".join(f'  ["{name}"] = {{ {_strings(mine)} }},\n' for name, mine in everybody if _is_plain(name))
    return f"-- {MANAGED_HEADER[2:]}return {{\ngroups = {{\n{groups}}},\npeople = {{\n{of_people}}},\n}}\n"


def _is_plain(name: str) -> bool:
    """Whether a name can't end a string of Lua's: a directory service has others."""
    return bool(re.fullmatch(r"[A-Za-z0-9_.@+-]+", name))


def _strings(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _accounts(group: Entry, today: date) -> Iterator[dict[str, Any]]:
    parent, *parts = accounts_of(group["name"])
    closed = _is_over(group.get("end"), today) or (bool(group.get("start")) and not _is_over(group.get("start"), today))
    shares = {"Share": str(group["shares"])} if group.get("shares") else {}
    yield {"name": parent, "settings": {"ParentName": "root", **shares, **(CLOSED_ACCOUNT if closed else {})}}
    yield from ({"name": name, "settings": {"ParentName": parent}} for name in parts)


def _users(person: Entry, today: date) -> Iterator[dict[str, Any]]:
    limits = dict(CLOSED_USER) if _is_over(person.get("expires"), today) else {}
    for index, group in enumerate(person["groups"]):
        for account in accounts_of(group):
            default = {"default": True} if index == 0 and account == group else {}
            yield {"name": person["name"], "account": account, **default, "settings": limits}


def _is_over(day: object, today: date) -> bool:
    """Whether that day has come."""
    return bool(day) and date.fromisoformat(str(day)) <= today
