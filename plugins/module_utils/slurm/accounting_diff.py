"""The difference between the QOS, accounts and users that are wanted and those that Slurm has. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Dict, List, Tuple

from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm.accounting import (
    TABLES,
    TIME,
    is_removable,
    options,
)

# what it is of, its key, whether it is new, and {setting: value}
Change = Tuple[str, str, bool, Dict[str, str]]
# changes, and the words of sacctmgr that make them
Task = Tuple[List[Change], List[str]]
# of a user who has left: submits nothing, and what is in the queue (a job that requeues itself, too) does not start
CLOSED_USER = {"MaxSubmit": "0", "MaxJobs": "0"}


def difference(wanted: Mapping[str, Any], present: Mapping[str, Any], owned: Mapping[str, Any]) -> list[Change]:
    """[(kind, key, is new, {setting: value})]: what has to be set, '' unsets a setting; in the order of execution.

    `owned` holds the settings that the last call made: of those, what is not wanted any more is unset.
    What a site set by itself stays.
    """
    changes = []
    for object_type in ("qos", "associations", "users"):
        for key, desired in wanted.get(object_type, {}).items():
            now = present.get(object_type, {}).get(key.lower())
            change = {name: value for name, value in desired.items() if (now or {}).get(name) != value}
            if now is None:
                changes.append((object_type, key, True, change))
                continue
            managed = owned.get(object_type, {}).get(key, [])
            change.update(
                {
                    name: ""
                    for name in managed
                    if name not in desired and name in now and is_removable(object_type, name)
                }
            )
            if change:
                changes.append((object_type, key, False, change))
    return changes


def missing_account(wanted: Mapping[str, Any], present: Mapping[str, Any]) -> str:
    """A sentence for a declared object whose account is neither declared nor in the database; '' for none."""
    known = {key.lower() for key in list(wanted["associations"]) + list(present["associations"]) if "/" not in key}
    for key, values in wanted["associations"].items():
        needed = key.partition("/")[0] if "/" in key else values.get("ParentName", "root")
        if needed.lower() not in known | {"root"}:
            return f"{label('associations', key)}: there is no account {needed}"
    return ""


def close_users(wanted: Mapping[str, Any], present: Mapping[str, Any], names: Collection[str]) -> None:
    """Let these users submit and start no more jobs, wherever they have an association."""
    for key in present["associations"]:
        if key.partition("/")[2] in names:
            # an association that is declared is spelt as declared
            wanted["associations"].setdefault(key, {}).update(CLOSED_USER)


def close_left(
    wanted: Mapping[str, Any], present: Mapping[str, Any], accounts: Sequence[str], others: Mapping[str, Any]
) -> list[str]:
    """Let only declared users submit jobs in these accounts; returns the names of those who have left."""
    declared = {key.lower() for key in [*wanted["associations"], *others]}
    left = [
        key for key in within(present, accounts) if key not in declared and key.partition("/")[2] not in ("", "root")
    ]
    for key in left:
        wanted["associations"][key] = dict(CLOSED_USER)
    # the jobs of who is open elsewhere are no matter of this account alone
    still = {key.lower().partition("/")[2] for key in wanted["associations"] if key not in left}
    return sorted({key.partition("/")[2] for key in left} - still)


def within(present: Mapping[str, Any], accounts: Sequence[str]) -> list[str]:
    """The associations of these accounts and of users in them."""
    names = {name.lower() for name in accounts}
    return [key for key in present["associations"] if key.partition("/")[0] in names]


def undeclared(
    wanted: Mapping[str, Any], present: Mapping[str, Any], others: Collection[str] = ()
) -> dict[str, list[str]]:
    """{kind: names} of what is there and not declared, in `others` neither: a site's own, left alone."""
    declared_keys = {key.lower() for key in [*wanted["associations"], *others]}
    undeclared = [key.partition("/") for key in present["associations"] if key not in declared_keys]
    declared = {key.partition("/")[2] for key in declared_keys}
    return {
        "qos": sorted(set(present["qos"]) - set(wanted["qos"]) - {"normal"}),
        "accounts": sorted({account for account, _slash, user in undeclared if not user} - {"root"}),
        "users": sorted({user for _account, _slash, user in undeclared if user} - declared - {"root"}),
    }


def manual_limits(wanted: Mapping[str, Any], present: Mapping[str, Any], owned: Mapping[str, Any]) -> list[str]:
    """Sentences for limits of declared objects that are not declared: they were set with sacctmgr."""
    sentences = []
    for object_type in ("qos", "associations"):
        for key, desired in wanted.get(object_type, {}).items():
            now, managed = present.get(object_type, {}).get(key.lower(), {}), owned.get(object_type, {}).get(key, [])
            undeclared = [
                name for name in now if name not in desired and name not in managed and name[:3] in ("Grp", "Max")
            ]
            sentences += [
                f"{label(object_type, key)}: {name}={shown(object_type, name, now[name])}" for name in undeclared
            ]
    return sentences


def commands(changes: Iterable[Change], cluster: str) -> list[Task]:
    """[(changes, words of sacctmgr)]: one call for each change, and one for what is added with identical settings."""
    first: list[Task] = []
    identical: dict[tuple[str, ...], list[tuple[Change, str]]] = {}
    new_accounts: dict[tuple[str, ...], Task] = {}
    of_users: dict[tuple[str, ...], list[Change]] = {}
    for change in changes:
        object_type, key, new, values = change
        account, _slash, user = key.partition("/")
        if object_type == "associations" and user and new:
            identical.setdefault((account,) + tuple(options(object_type, values)), []).append((change, user))
        elif object_type == "associations" and new and tuple(options(object_type, values)) in new_accounts:
            # where the first of them is: parents come before their children
            some, argv = new_accounts[tuple(options(object_type, values))]
            some.append(change)
            argv[2] += "," + key
        elif object_type == "users":
            of_users.setdefault(tuple(options(object_type, values)), []).append(change)
        else:
            first.append(([change], command(change, cluster)))
            if object_type == "associations" and new:
                new_accounts[tuple(options(object_type, values))] = first[-1]
    # a user's default account has to be there first
    return first + _added_users(identical, cluster) + _modified_users(of_users, cluster)


def _modified_users(identical: Mapping[tuple[str, ...], list[Change]], cluster: str) -> list[Task]:
    """One call for up to 100 users who get the same."""
    calls = []
    for words, members in identical.items():
        for start in range(0, len(members), 100):
            some = members[start : start + 100]
            where = ["name=" + ",".join(key for _type, key, _new, _values in some), "cluster=" + cluster]
            calls.append((some, ["modify", "user", "where"] + where + ["set"] + list(words)))
    return calls


def _added_users(identical: Mapping[tuple[str, ...], Sequence[tuple[Change, str]]], cluster: str) -> list[Task]:
    """One call for the same users with the same settings in several accounts, for up to 100 users at once."""
    together: dict[tuple[str, tuple[str, ...]], tuple[list[str], list[Change]]] = {}
    for (account, *words), members in identical.items():
        for start in range(0, len(members), 100):
            some = members[start : start + 100]
            key = (",".join(user for _change, user in some), tuple(words))
            accounts, changes = together.setdefault(key, ([], []))
            accounts.append(account)
            changes.extend(change for change, _user in some)
    return [
        (changes, ["add", "user", names, "account=" + ",".join(accounts), "cluster=" + cluster] + list(words))
        for (names, words), (accounts, changes) in together.items()
    ]


def command(change: Change, cluster: str) -> list[str]:
    """The words of sacctmgr for one change."""
    object_type, key, new, values = change
    account, _slash, user = key.partition("/")
    words = options(object_type, values)
    if object_type == "qos":
        return ["add", "qos", key] + words if new else ["modify", "qos", "where", "name=" + key, "set"] + words
    if new:
        return ["add", "account", key, "cluster=" + cluster] + words
    whom = ["user", "where", "name=" + user, "account=" + account] if user else ["account", "where", "name=" + account]
    return ["modify"] + whom + ["cluster=" + cluster, "set"] + words


def label(object_type: str, key: str) -> str:
    """How a message names an object."""
    account, _slash, user = key.partition("/")
    if object_type == "associations":
        return f"user {user} in {account}" if user else f"account {account}"
    return f"{'QOS' if object_type == 'qos' else 'user'} {key}"


def shown(object_type: str, setting: str, value: str) -> str:
    """A normal value for people."""
    column, _bracket, tres = setting.partition("[")
    form = TABLES[object_type][column][0]
    if form == TIME and value:
        hours, mins = divmod(int(value), 60)
        return f"{hours // 24}-{hours % 24:02}:{mins:02}:00"
    if tres == "mem]" and value:
        return value[:] + "M" if int(value) % 1024 else f"{int(value) // 1024}G"
    return value


def lines(changes: Iterable[Change], present: Mapping[str, Any], after: bool) -> str:
    """One line for every object and setting that changes, before (`after` false) or after."""
    result = []
    for object_type, key, new, values in changes:
        if after or not new:
            result.append(label(object_type, key))
            now = present.get(object_type, {}).get(key.lower(), {})
            texts = values if after else {name: now.get(name, "") for name in values}
            result += [f"  {name} = {shown(object_type, name, texts[name])}" for name in sorted(texts) if texts[name]]
    return "".join(line + "\n" for line in result)


def row(change: Change, present: Mapping[str, Any]) -> dict[str, str]:
    """A change as `changes` of a module's result has it."""
    object_type, key, new, values = change
    now = present.get(object_type, {}).get(key.lower(), {})
    parts = []
    for name in sorted(values):
        old_value, new_value = shown(object_type, name, now.get(name, "")), shown(object_type, name, values[name])
        parts.append(f"{name}={new_value}" if new else f"{name}: {old_value or 'unset'} -> {new_value or 'unset'}")
    noun = "user" if object_type == "users" or "/" in key else "account" if object_type == "associations" else "qos"
    name = label(object_type, key).partition(" ")[2]
    return {"kind": noun, "name": name, "action": "add" if new else "modify", "detail": ", ".join(parts)}


def sentence(row: Mapping[str, str]) -> str:
    """What a change does."""
    noun = row["kind"].replace("qos", "QOS")
    detail = f" ({row['detail']})" if row["detail"] else ""
    return f"{'added' if row['action'] == 'add' else 'modified'} {noun} {row['name']}{detail}"


def notes(
    wanted: Mapping[str, Any], present: Mapping[str, Any], owned: Mapping[str, Any], others: Collection[str] = ()
) -> list[str]:
    """What a person should know of what is not declared, in `others` neither: it is left alone."""
    sentences = [
        f"Slurm has {noun} that cluster.yml does not declare, left alone: {some(names)}"
        for noun, names in zip(("QOS", "accounts", "users"), undeclared(wanted, present, others).values())
        if names
    ]
    limits = manual_limits(wanted, present, owned)
    if limits:
        sentences.append(f"limits set by sacctmgr that cluster.yml does not declare, left alone: {some(limits, '; ')}")
    return sentences


def some(names: Sequence[str], separator: str = ", ") -> str:
    """The first few of many names."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return separator.join(names[:5]) + more
