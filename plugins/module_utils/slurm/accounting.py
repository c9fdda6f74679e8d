"""QOS, accounts and users: what cluster.yml declares and what sacctmgr prints, as data. Pure.

A setting has the name of sacctmgr's column; one of several TRES is a setting of its own (`GrpTRES[cpu]`). Values are
kept in one normal form, and '' means that nothing is set: sacctmgr prints `90` as `01:30:00` and `1024G` as `1T`.
Tried with Slurm 22.05 and 24.11.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import slurm_output

TRES, COUNT, TIME, SECONDS, FACTOR, WORDS, WORD = "tres", "count", "time", "seconds", "factor", "words", "word"

# Column of `sacctmgr show` -> (form of its value, option of `sacctmgr add` and `modify`, the value that unsets it).
# First what a QOS and an association have in common.
_BOTH = {
    "GrpTRES": (TRES, "GrpTRES", "-1"),
    "GrpTRESMins": (TRES, "GrpTRESMins", "-1"),
    "GrpTRESRunMins": (TRES, "GrpTRESRunMins", "-1"),
    "GrpJobs": (COUNT, "GrpJobs", "-1"),
    "GrpJobsAccrue": (COUNT, "GrpJobsAccrue", "-1"),
    "GrpSubmit": (COUNT, "GrpSubmitJobs", "-1"),
    "GrpWall": (TIME, "GrpWall", "-1"),
    "MaxTRES": (TRES, "MaxTRESPerJob", "-1"),
    "MaxTRESPerNode": (TRES, "MaxTRESPerNode", "-1"),
    "MaxTRESMins": (TRES, "MaxTRESMinsPerJob", "-1"),
}
QOS = {
    "Priority": (COUNT, "Priority", "-1"),
    "Preempt": (WORDS, "Preempt", ""),
    "PreemptMode": (WORD, "PreemptMode", "cluster"),
    "PreemptExemptTime": (TIME, "PreemptExemptTime", "-1"),
    "GraceTime": (SECONDS, "GraceTime", "-1"),
    "Flags": (WORDS, "Flags", "-1"),
    "UsageFactor": (FACTOR, "UsageFactor", "-1"),
    "UsageThres": (FACTOR, "UsageThreshold", "-1"),
    "LimitFactor": (FACTOR, "LimitFactor", "-1"),
    **_BOTH,
    "MaxWall": (TIME, "MaxWallDurationPerJob", "-1"),
    "MaxTRESPU": (TRES, "MaxTRESPerUser", "-1"),
    "MaxTRESPA": (TRES, "MaxTRESPerAccount", "-1"),
    "MaxJobsPU": (COUNT, "MaxJobsPerUser", "-1"),
    "MaxJobsPA": (COUNT, "MaxJobsPerAccount", "-1"),
    "MaxJobsAccruePU": (COUNT, "MaxJobsAccruePerUser", "-1"),
    "MaxJobsAccruePA": (COUNT, "MaxJobsAccruePerAccount", "-1"),
    "MaxSubmitPU": (COUNT, "MaxSubmitJobsPerUser", "-1"),
    "MaxSubmitPA": (COUNT, "MaxSubmitJobsPerAccount", "-1"),
    "MinTRES": (TRES, "MinTRESPerJob", "-1"),
}
ASSOCIATION = {
    "ParentName": (WORD, "Parent", "root"),
    "Share": (WORD, "Fairshare", "1"),
    "Priority": (COUNT, "Priority", "-1"),
    "QOS": (WORDS, "QosLevel", ""),
    "DefaultQOS": (WORD, "DefaultQOS", "-1"),
    **_BOTH,
    "MaxJobs": (COUNT, "MaxJobs", "-1"),
    "MaxJobsAccrue": (COUNT, "MaxJobsAccrue", "-1"),
    "MaxSubmit": (COUNT, "MaxSubmitJobs", "-1"),
    "MaxWall": (TIME, "MaxWallDurationPerJob", "-1"),
}
USER = {"DefaultAccount": (WORD, "DefaultAccount", None)}
# of an account itself; it is shown by one command and set by another, so it counts as a setting of the association
ACCOUNT = {"Descr": (WORD, "Description", None)}

COLUMNS = {
    "qos": ["Name"] + list(QOS),
    "accounts": ["Account"] + list(ACCOUNT),
    "users": ["User"] + list(USER),
    "associations": ["Account", "User", "Partition"] + list(ASSOCIATION),
}
TABLES: dict[str, dict[str, Any]] = {
    "qos": QOS,
    "accounts": ACCOUNT,
    "users": USER,
    "associations": dict(ASSOCIATION, **ACCOUNT),
}

# What sacctmgr prints where nothing was set.
UNSET = {
    ("Share", "1"),
    ("ParentName", "root"),
    ("PreemptMode", "cluster"),
    ("Priority", "0"),
    ("GraceTime", "0"),
    ("UsageFactor", "1"),
}


def megabytes(text: str) -> str:
    """An amount of memory in MiB: `2000`, `1T`, `500G`."""
    amount = slurm_output.size(text.upper(), "M")
    if amount is None:
        raise ValueError(f"no amount of memory: {text}")
    return str(round(amount / 1024**2))


def normal(column: str, form: str, text: str) -> dict[str, str]:
    """{setting: value} for what stands in a column; empty when nothing is set."""
    text = text.strip()
    if text in ("", "-1") or (form == TIME and text.upper() in ("UNLIMITED", "INFINITE")):
        return {}
    if form == TRES:
        pairs = (item.partition("=") for item in text.split(",") if item)
        return {
            f"{column}[{name.lower()}]": megabytes(amount) if name.lower() == "mem" else amount
            for name, _equals, amount in pairs
            if amount != "-1"
        }
    if form == TIME:
        value = str(slurm_output.minutes(text))
    elif form == SECONDS:
        value = text if text.isdigit() else str(int(slurm_output.seconds(text) or 0))
    elif form == FACTOR:
        value = f"{float(text):g}"
    elif form == WORDS:
        value = ",".join(sorted({word.strip().lower() for word in text.split(",") if word.strip()}))
    else:
        value = text.lower() if form == WORD else str(int(text))
    return {} if (column, value) in UNSET else {column: value}


def settings(object_type: str, columns: Mapping[str, str]) -> dict[str, str]:
    """Normal settings of one object, from {column: text}."""
    values: dict[str, str] = {}
    for column, text in columns.items():
        values.update(normal(column, TABLES[object_type][column][0], text))
    return values


def desired_state(
    accounts: Sequence[str], users: Sequence[Mapping[str, str]], policy: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """{type: {key: settings}} of everything that is declared."""
    wanted: dict[str, dict[str, Any]] = {"qos": {}, "associations": {}, "users": {}}
    for qos in policy.get("qos", []):
        wanted["qos"][qos["name"]] = settings("qos", qos["settings"])
    for name in accounts:
        wanted["associations"].setdefault(name, {})
    for account in policy.get("accounts", []):
        wanted["associations"][account["name"]] = settings("associations", account["settings"])
    for user in users:
        wanted["associations"].setdefault(f"{user['account']}/{user['name']}", {})
    for user in policy.get("users", []):
        wanted["associations"][f"{user['account']}/{user['name']}"] = settings("associations", user["settings"])
        if user.get("default"):
            wanted["users"][user["name"]] = {"DefaultAccount": user["account"]}
    return wanted


def state(outputs: Mapping[str, str]) -> dict[str, dict[str, dict[str, str]]]:
    """{kind: {key: settings}} from what sacctmgr showed of each kind."""
    objects = {object_type: parse(object_type, output) for object_type, output in outputs.items()}
    for name, description in objects.pop("accounts").items():
        if name in objects["associations"]:
            objects["associations"][name].update(description)
    return objects


def parse(object_type: str, output: str) -> dict[str, dict[str, str]]:
    """{key: settings} from `sacctmgr --parsable2 --noheader show`; an association is `account` or `account/user`.

    Keys are in lower case, as Slurm itself stores them unless it is set to preserve a user's.
    """
    objects: dict[str, dict[str, str]] = {}
    for line in output.splitlines():
        row = dict(zip(COLUMNS[object_type], line.split("|")))
        if object_type == "associations":
            if row.pop("Partition"):
                continue  # limits of one user in one partition are nothing that cluster.yml has
            user = row.pop("User")
            key = row.pop("Account") + ("/" + user if user else "")
            if user:
                row.pop("ParentName")
        else:
            key = row.pop(COLUMNS[object_type][0])
        objects[key.lower()] = settings(object_type, row)
    return objects


def is_removable(object_type: str, setting: str) -> bool:
    """Whether a setting can be unset at all."""
    return TABLES[object_type][setting.partition("[")[0]][2] is not None


def options(object_type: str, change: Mapping[str, str]) -> list[str]:
    """The words of `sacctmgr add` or `modify ... set` that make a change."""
    merged: dict[str, list[str]] = {}
    for name, value in change.items():
        column, _bracket, tres = name.partition("[")
        form, option, nothing = TABLES[object_type][column]
        text = value if value != "" else nothing
        merged.setdefault(option, []).append(f"{tres[:-1]}={text}" if form == TRES else text)
    return [f"{option}={','.join(texts)}" for option, texts in merged.items()]
