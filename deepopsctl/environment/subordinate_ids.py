"""Subordinate ids of users: the ids that a user's containers have besides the user's own, the same on every node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from deepopsctl.text.problems import RefusedError

# ids of one user, as useradd counts them, and users that there is room for
EACH, USERS = 65_536, 20_000
_LAST_ID = 2**31 - 1
_HINT = "containers_first_id is where the subordinate ids begin: choose ids that your site does not use"


def block(people: Mapping[str, Any], directory: Mapping[str, Any], first: int, login: str) -> str:
    """The lines for subuid(5) and subgid(5): people.yml by name, the directory's `ids` by number, and `login`.

    A user's place follows from the user's own id, and is the next free one where another user has it.
    """
    persons = {person["uid"]: person["name"] for person in people.get("people", ())}
    last = directory.get("last_id") or 0
    listed = range(directory["first_id"], last + 1) if last else range(0)
    # those of people.yml first: they keep their place whatever the directory has
    users = {**{uid: persons[uid] for uid in sorted(persons)}, **{uid: str(uid) for uid in listed}}
    _require_room(users, {group["gid"] for group in people.get("groups", ())}, first)
    taken: dict[int, str] = {}
    for uid, name in users.items():
        place = uid % USERS
        while place in taken:
            place = (place + 1) % USERS
        taken[place] = name
    if login not in ("root", "", *persons.values()):
        taken[USERS] = login
    return "".join(f"{name}:{first + place * EACH}:{EACH}\n" for place, name in sorted(taken.items()))


def _require_room(users: Iterable[int], groups: Iterable[int], first: int) -> None:
    uids, size = list(users), (USERS + 1) * EACH
    end = first + size
    if first < EACH or end > _LAST_ID:
        raise RefusedError(f"containers_first_id: {first} is not between {EACH} and {_LAST_ID - size}", _HINT)
    if len(uids) > USERS:
        raise RefusedError(
            f"{len(uids)} users are too many for subordinate ids, {USERS} are the most", "narrow `ids` in people.yml"
        )
    if within := [number for number in (*uids, *groups) if first <= number < end]:
        raise RefusedError(f"the id {within[0]} of people.yml or the directory is among the subordinate ids", _HINT)
