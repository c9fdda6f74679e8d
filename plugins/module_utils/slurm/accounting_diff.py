"""The difference between the QOS, accounts and users that are wanted and those that Slurm has. Pure."""

from __future__ import annotations

from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm.accounting import (
    TABLES,
    TIME,
    options,
    takes_away,
)


def difference(wanted, present, owned):
    """[(kind, key, is new, {setting: value})]: what has to be set, '' takes a setting away; in the order to do it.

    `owned` holds the settings of the last call that were ours: of those, what is wanted no more is taken away.
    What a site set by itself stays.
    """
    found = []
    for kind in ("qos", "associations", "users"):
        for key, wish in wanted.get(kind, {}).items():
            now = present.get(kind, {}).get(key.lower())
            change = {name: value for name, value in wish.items() if (now or {}).get(name) != value}
            if now is None:
                found.append((kind, key, True, change))
                continue
            mine = owned.get(kind, {}).get(key, [])
            change.update({name: "" for name in mine if name not in wish and name in now and takes_away(kind, name)})
            if change:
                found.append((kind, key, False, change))
    return found


def foreign(wanted, present):
    """{kind: names} of what is there and not declared: a site's own, left alone."""
    ours = {key.lower() for key in wanted["associations"]}
    odd = [key.partition("/") for key in present["associations"] if key not in ours]
    declared = {key.partition("/")[2] for key in ours}
    return {
        "qos": sorted(set(present["qos"]) - set(wanted["qos"]) - {"normal"}),
        "accounts": sorted({account for account, _slash, user in odd if not user} - {"root"}),
        "users": sorted({user for _account, _slash, user in odd if user} - declared - {"root"}),
    }


def by_hand(wanted, present, owned):
    """Sentences for limits of declared objects that nobody declared: somebody set them with sacctmgr."""
    found = []
    for kind in ("qos", "associations"):
        for key, wish in wanted.get(kind, {}).items():
            now, mine = present.get(kind, {}).get(key.lower(), {}), owned.get(kind, {}).get(key, [])
            odd = [name for name in now if name not in wish and name not in mine and name[:3] in ("Grp", "Max")]
            found += ["%s: %s=%s" % (label(kind, key), name, shown(kind, name, now[name])) for name in odd]
    return found


def commands(changes, cluster):
    """[(changes, words of sacctmgr)]: one call for each change, and one for all users who are added alike."""
    first, last, alike = [], [], {}
    for change in changes:
        kind, key, new, values = change
        account, _slash, user = key.partition("/")
        if kind == "associations" and user and new:
            alike.setdefault((account,) + tuple(options(kind, values)), []).append((change, user))
        else:
            # a user's default account has to be there first
            (last if kind == "users" else first).append(([change], command(change, cluster)))
    added = []
    for (account, *words), members in alike.items():
        for start in range(0, len(members), 100):
            some = members[start : start + 100]
            names = ",".join(user for _change, user in some)
            argv = ["add", "user", names, "account=" + account, "cluster=" + cluster] + words
            added.append(([change for change, _user in some], argv))
    return first + added + last


def command(change, cluster):
    """The words of sacctmgr for one change."""
    kind, key, new, values = change
    account, _slash, user = key.partition("/")
    words = options(kind, values)
    if kind == "qos":
        return ["add", "qos", key] + words if new else ["modify", "qos", "where", "name=" + key, "set"] + words
    if kind == "users":
        return ["modify", "user", "where", "name=" + key, "cluster=" + cluster, "set"] + words
    if new:
        return ["add", "account", key, "cluster=" + cluster] + words
    whom = ["user", "where", "name=" + user, "account=" + account] if user else ["account", "where", "name=" + account]
    return ["modify"] + whom + ["cluster=" + cluster, "set"] + words


def label(kind, key):
    """How a message names an object."""
    account, _slash, user = key.partition("/")
    if kind == "associations":
        return "user %s in %s" % (user, account) if user else "account %s" % account
    return "%s %s" % ({"qos": "QOS", "users": "user"}[kind], key)


def shown(kind, setting, value):
    """A normal value for people."""
    column, _bracket, tres = setting.partition("[")
    form = TABLES[kind][column][0]
    if form == TIME and value:
        hours, mins = divmod(int(value), 60)
        return "%d-%02d:%02d:00" % (hours // 24, hours % 24, mins)
    if tres == "mem]" and value:
        return value[:] + "M" if int(value) % 1024 else "%dG" % (int(value) // 1024)
    return value


def lines(changes, present, after):
    """One line for every object and setting that changes, before (`after` false) or after."""
    found = []
    for kind, key, new, values in changes:
        if after or not new:
            found.append(label(kind, key))
            now = present.get(kind, {}).get(key.lower(), {})
            texts = values if after else {name: now.get(name, "") for name in values}
            found += ["  %s = %s" % (name, shown(kind, name, texts[name])) for name in sorted(texts) if texts[name]]
    return "".join(line + "\n" for line in found)


def row(change, present):
    """A change as `changes` of a module's result has it."""
    kind, key, new, values = change
    now = present.get(kind, {}).get(key.lower(), {})
    parts = []
    for name in sorted(values):
        old, wish = shown(kind, name, now.get(name, "")), shown(kind, name, values[name])
        parts.append("%s=%s" % (name, wish) if new else "%s: %s -> %s" % (name, old or "unset", wish or "unset"))
    noun = "user" if kind == "users" or "/" in key else "account" if kind == "associations" else "qos"
    name = label(kind, key).partition(" ")[2]
    return {"kind": noun, "name": name, "action": "add" if new else "modify", "detail": ", ".join(parts)}


def sentence(row):
    """What a change does."""
    noun = row["kind"].replace("qos", "QOS")
    detail = " (%s)" % row["detail"] if row["detail"] else ""
    return "%s %s %s%s" % ({"add": "added", "modify": "modified"}[row["action"]], noun, row["name"], detail)


def notes(wanted, present, owned):
    """What a person should know of what is not declared: it is left alone."""
    found = [
        "Slurm has %s that cluster.yml does not declare, left alone: %s" % (noun, some(names))
        for noun, names in zip(("QOS", "accounts", "users"), foreign(wanted, present).values())
        if names
    ]
    odd = by_hand(wanted, present, owned)
    if odd:
        found.append("limits set by sacctmgr that cluster.yml does not declare, left alone: %s" % some(odd, "; "))
    return found


def some(names, separator=", "):
    """The first few of many names."""
    more = " and %d more" % (len(names) - 5) if len(names) > 5 else ""
    return separator.join(names[:5]) + more
