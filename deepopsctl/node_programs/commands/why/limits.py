"""Limits of associations and QOS: what Slurm's words for them mean, how high they are, and whose they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ..._shared import slurm_client, slurm_output
from ..._shared.slurm_output import clean
from .asking import Slurm
from .job import Job

# `QOSMaxCpuPerUserLimit`, `AssocGrpCPURunMinutesLimit`; the words of job_state_reason.c of 22.05 to 26.05
_REASON = re.compile(
    r"(?P<of>Assoc|QOS)?(?P<kind>Grp|Max|Min)(?P<what>Cpu|CPU|Mem(?:ory)?|Node|GRES|Gres|Billing|License|BB|Energy"
    r"|Jobs?|SubmitJobs?|Wall(?:Duration)?)(?P<minutes>RunMin(?:ute)?s|Min(?:ute)?s)?(?P<per>Per(?:Job|Node|User|Account))?"
    r"(?:Limit|NotSatisfied)?"
)
_TRES = {"cpu": "cpu", "mem": "mem", "memory": "mem", "node": "node", "gres": "gres/", "billing": "billing",
         "license": "license/", "bb": "bb/", "energy": "energy"}  # fmt: skip
_PER = {"PerJob": "PJ", "PerNode": "PN", "PerUser": "PU", "PerAccount": "PA", None: ""}
_SCOPE = {
    "PJ": "of one job",
    "PN": "of one job on a node",
    "PU": "of one user at a time",
    "PA": "of one account at a time",
    "": "of all together",
}
_VALUE = re.compile(r"([0-9.]+|N)?(?:\(([0-9.]+)\))?")
_GROUPS = re.compile(r"(\S+?)(?:\([0-9]+\))?=\{([^}]*)\}")


class Limit(NamedTuple):
    """A limit that Slurm has named: `field` is assoc_mgr's name of it, `tres` of which resource ('' for none)."""

    of_qos: bool
    kind: str
    field: str
    tres: str
    scope: str

    @property
    def minutes(self) -> bool:
        """Whether it is of time used, not of what is used at once."""
        return "Mins" in self.field


class Value(NamedTuple):
    """A limit with its value and what is used of it, and whose it is: `QOS short`, `account physics`."""

    owner: str
    tres: str
    most: str
    used: str


def limit(reason: str) -> Limit | None:
    """What a reason says; None where it is not about a limit of associations or QOS."""
    match = _REASON.fullmatch(reason)
    if not match:
        return None
    # `MaxJobsPerAccount` is of a QOS, too
    if not match["of"] and match["per"] not in ("PerUser", "PerAccount"):
        return None
    of_qos, what, per = match["of"] != "Assoc", match["what"].lower(), _PER[match["per"]]
    per = "PJ" if match["kind"] == "Min" else per
    minutes = match["minutes"] or ""
    if what.startswith(("job", "submit")):
        base = "SubmitJobs" if what.startswith("submit") else "Jobs"
        field = f"Grp{base}" if match["kind"] == "Grp" else f"Max{base}{per if of_qos else ''}"
        return Limit(of_qos, match["kind"], field, "", _SCOPE["" if match["kind"] == "Grp" else per or "PU"])
    if what.startswith("wall"):
        group = match["kind"] == "Grp"
        return Limit(of_qos, match["kind"], "GrpWall" if group else "MaxWallPJ", "", _SCOPE["" if group else "PJ"])
    kind = "RunMins" if minutes.startswith("Run") else "Mins" if minutes else ""
    scope = "" if match["kind"] == "Grp" else per
    field = f"{match['kind']}TRES{kind}{scope}"
    return Limit(of_qos, match["kind"], field, _TRES[what], _SCOPE[scope])


def values(which: Limit, job: Job, slurm: Slurm) -> list[Value]:
    """The limits that this can be: of the job's QOS and its partition's, or of its association and those above."""
    if which.of_qos:
        partitions = slurm.show("partition")
        names = {job["QOS"]} | {partitions[name].get("QoS", "N/A") for name in job.partitions if name in partitions}
        lines = _state(slurm, job, qos=sorted(names - {"", "N/A"}))
    else:
        lines = _state(slurm, job, accounts=[job["Account"]])
        above = {name for line in lines for name in _above(line)} - {job["Account"]}
        if above and not _set(which, job, lines):
            lines += _state(slurm, job, accounts=sorted(above))
    return _set(which, job, lines)


def is_tight(which: Limit, job: Job, value: Value) -> bool:
    """Whether the job is over it, with what is used already."""
    used, most = float(value.used or 0), float(value.most)
    if which.field in ("MaxWallPJ", "GrpWall") or which.minutes:
        # of the time of one job, or of what was used in the past
        return (job.minutes or float("inf")) > most if which.field == "MaxWallPJ" else used >= most
    asked = float(slurm_output.size(job.tres.get(value.tres, "0") if value.tres else "1", "") or 0)
    asked = asked / (1 << 20) if value.tres == "mem" else asked
    asked = asked / job.nodes if which.field.endswith("PN") else asked
    return asked < most if which.kind == "Min" else used + asked > most


_PLACES = (("Grp", ""), ("Max", "PerUser"), ("Max", "PerAccount"), ("Max", "PerJob"), ("Max", "PerNode"))
# what a QOS may have, but submit limits: those refuse jobs
_OF_QOS = (
    *(f"QOS{kind}{what}{per}Limit" for kind, per in _PLACES for what in ("Cpu", "Mem", "GRES", "Node")),
    *("QOSGrpJobsLimit", "QOSMaxJobsPerUserLimit", "QOSMaxJobsPerAccountLimit", "QOSMaxWallDurationPerJobLimit"),
    *("QOSGrpCpuMinutesLimit", "QOSGrpWallLimit", "QOSMaxCpuMinutesPerJobLimit", "QOSMinCpuNotSatisfied"),
)


def open_qos(names: list[str], job: Job, slurm: Slurm) -> list[str]:
    """Of these QOS, those that have no limit that the job is over, without any limit first."""
    lines = _state(slurm, job, qos=names) if names else []
    known = [which for which in map(limit, _OF_QOS) if which]
    counts = {}
    for line in lines:
        of_line = [(which, value) for which in known for value in _values(which, job, line)]
        if not any(is_tight(which, job, value) for which, value in of_line):
            counts[slurm_output.record(line)["QOS"].partition("(")[0]] = len(of_line)
    return sorted((name for name in names if name in counts), key=lambda name: counts[name])


def _state(slurm: Slurm, job: Job, accounts: list[str] | None = None, qos: list[str] | None = None) -> list[str]:
    """Lines of assoc_mgr; users only this one, and accounts themselves."""
    words = (
        [f"accounts={','.join(accounts)}", "flags=assoc"]
        if accounts
        else [f"qos={','.join(qos or ['normal'])}", "flags=qos"]
    )
    text = slurm.text(slurm_client.show("assoc_mgr", *words))
    start = ("QOS=", "ClusterName=")
    lines = [line for line in text.splitlines() if line.startswith(start)]
    return [
        line
        for line in lines
        if " UserName= " in line or line.startswith("QOS=") or f" UserName={job['UserName']}(" in line
    ]


def _above(line: str) -> list[str]:
    """Accounts over an association: its lineage, or its parent where Slurm is older than 24.05."""
    entry = slurm_output.record(line)
    lineage = [word for word in entry.get("Lineage", "").split("/") if word and not word[0].isdigit()]
    return [*lineage, entry.get("ParentAccount", "").partition("(")[0] or "root"]


def _set(which: Limit, job: Job, lines: list[str]) -> list[Value]:
    return [value for line in lines for value in _values(which, job, line)]


def _values(which: Limit, job: Job, line: str) -> Iterator[Value]:
    # the limits of each user and account stand in brackets, behind those of the QOS
    plain, _, groups = line.partition(" Account Limits=")
    entry = slurm_output.record(plain)
    owner = _owner(entry)
    if which.field.endswith(("PU", "PA")):
        accounts, _, users = groups.partition("User Limits=")
        mine = (job["UserName"], users) if which.field.endswith("PU") else (job["Account"], accounts)
        entry = next((slurm_output.record(text) for name, text in _GROUPS.findall(mine[1]) if name == mine[0]), {})
    text = entry.get(which.field, "")
    if not which.tres:
        match = _VALUE.fullmatch(text)
        if match and match[1] and match[1] != "N":
            yield Value(owner, "", match[1], match[2] or "")
        return
    for name, value in slurm_output.tres(text).items():
        match = _VALUE.fullmatch(value)
        wanted = name.startswith(which.tres) if which.tres.endswith("/") else name == which.tres
        if wanted and match and match[1] and match[1] != "N":
            yield Value(owner, name, match[1], match[2] or "")


def _owner(entry: slurm_output.Record) -> str:
    if "QOS" in entry:
        return f"QOS {clean(entry['QOS'].partition('(')[0])}"
    user = entry.get("UserName", "").partition("(")[0]
    account = f"account {clean(entry.get('Account', ''))}"
    return f"user {clean(user)} in {account}" if user else account
