"""A job in slurmctld: its columns, none of which is a text that its user chose, and the same request again."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..._shared import slurm_client, slurm_output
from ..._shared.fitting import Gres, Job as Request, expanded, gres
from ..._shared.slurm_output import clean, whole
from .asking import NoJobError, Slurm

# squeue has most of these by long names only, in columns that are cut by their widths
_COLUMNS = {
    "JobArrayID": 64, "JobID": 16, "UserName": 64, "Account": 128, "QOS": 128, "State": 24, "Reason": 256,
    "Partition": 512, "PriorityLong": 16, "NumNodes": 24, "NumCPUs": 24, "NumTasks": 16, "cpus-per-task": 16,
    "MinCpus": 16, "TimeLimit": 24, "Dependency": 512, "EligibleTime": 16, "SubmitTime": 16, "StartTime": 16,
    "EndTime": 16, "SchedNodes": 256, "NodeList": 256, "ReqNodes": 512, "ExcNodes": 512, "Licenses": 256,
    "Reservation": 128, "tres-per-job": 256, "tres-per-node": 256, "tres-per-socket": 256, "tres-per-task": 256,
    "OverSubscribe": 16, "RestartCnt": 8, "tres-alloc": 512, "Feature": 512,
}  # fmt: skip
_ID = re.compile(r"[0-9]+(?:[_+][0-9]+|_\[[0-9,:%.-]+\]?)?")
# what squeue prints where a job has asked for nothing
_NONE = ("", "N/A", "(null)", "None", "Unknown")


@dataclass(frozen=True)
class Job:
    """What squeue shows of a job, by its column's name; '' for nothing."""

    wanted: str
    columns: dict[str, str]

    def __getitem__(self, column: str) -> str:
        return self.columns[column]

    @property
    def reason(self) -> str:
        """Slurm's word, as scontrol writes it."""
        return self["Reason"].replace(" ", "_")

    @property
    def partitions(self) -> list[str]:
        """Those that it may go to."""
        return self["Partition"].split(",")

    @property
    def waits(self) -> bool:
        """Whether it has not begun."""
        return self["State"] == "PENDING"

    @property
    def minutes(self) -> int | None:
        """Its time limit."""
        try:
            return slurm_output.minutes(self["TimeLimit"])
        except ValueError:
            return None

    def time(self, column: str) -> int | None:
        """A time in seconds since 1970."""
        return whole(self[column])

    @property
    def tres(self) -> dict[str, str]:
        """What it asks for, in all."""
        return slurm_output.tres(self["tres-alloc"])

    @property
    def nodes(self) -> int:
        """How many nodes at least."""
        return whole(self["NumNodes"].partition("-")[0]) or 1

    @property
    def request(self) -> Request:
        """What it asks of nodes."""
        memory = slurm_output.size(self.tres.get("mem", ""), "M") or 0
        by_node: Gres = {}
        for name in ("tres-per-node", "tres-per-socket", "tres-per-task"):
            by_node.update({key: max(count, by_node.get(key, 0)) for key, count in gres(_gres(self[name])).items()})
        whole_job = gres(_gres(self["tres-per-job"]))
        if self.nodes == 1:
            by_node.update(whole_job)
        return Request(
            id=self["JobArrayID"],
            user=self["UserName"],
            partitions=tuple(self.partitions),
            required=tuple(expanded(self["ReqNodes"])),
            excluded=tuple(expanded(self["ExcNodes"])),
            nodes=self.nodes,
            cpus=whole(self["NumCPUs"].partition("-")[0]) or 1,
            node_cpus=max(
                whole(self["MinCpus"]) or 1, -(-(whole(self["NumCPUs"].partition("-")[0]) or 1) // self.nodes)
            ),
            memory=(memory >> 20) // self.nodes,
            gres=tuple(sorted(by_node.items())),
            all_gres=tuple(sorted(whole_job.items())),
            limit=self.minutes,
            features=self["Feature"],
        )

    def options(self) -> dict[str, str]:
        """The same request for sbatch, by option."""
        memory = self.request.memory
        options = {
            option: value
            for option, value in {
                "--partition": self["Partition"],
                "--account": self["Account"],
                "--qos": self["QOS"],
                "--nodes": self["NumNodes"],
                "--ntasks": self["NumTasks"],
                "--cpus-per-task": self["cpus-per-task"],
                "--mem": f"{memory}M" if memory else "",
                "--time": str(self.minutes or ""),
                "--gpus": _gres(self["tres-per-job"], "gpu:"),
                "--gres": _gres(self["tres-per-node"]),
                "--gpus-per-socket": _gres(self["tres-per-socket"], "gpu:"),
                "--gpus-per-task": _gres(self["tres-per-task"], "gpu:"),
                "--constraint": self["Feature"],
                "--nodelist": self["ReqNodes"],
                "--exclude": self["ExcNodes"],
                "--licenses": self["Licenses"],
                "--reservation": self["Reservation"],
            }.items()
            if value
        }
        exclusive = {"NO": {"--exclusive": ""}, "USER": {"--exclusive": "user"}}
        return {**options, **exclusive.get(self["OverSubscribe"], {})}


def _gres(text: str, prefix: str = "") -> str:
    """`gres/gpu:a100:2` as options have it; cpu=2 is of --cpus-per-task."""
    words = [word.replace("gres/", "").replace("gres:", "").replace("=", ":") for word in text.split(",")]
    return ",".join(word.removeprefix(prefix) for word in words if word and not word.startswith(("cpu:", "mem:")))


def jobs(wanted: str, slurm: Slurm) -> list[Job]:
    """The job with this number that slurmctld has, or what there is of its array. [] where it has none.

    Raises NoJobError where slurmctld does not answer.
    """
    argv = slurm_client.squeue_long(
        tuple(_COLUMNS), tuple(_COLUMNS.values()), "--states=all", "--all", "--jobs=" + wanted
    )
    result = slurm.result(argv)
    if not result.ok:
        if "Invalid job id" in result.message:
            return []
        raise NoJobError(f"Slurm does not answer: {clean(result.failure, 300)}")
    rows: dict[str, Job] = {}
    for line in result.output.splitlines():
        columns, place = {}, 0
        for name, width in _COLUMNS.items():
            value = clean(line[place : place + width].strip(), width)
            columns[name] = "" if value in _NONE else value
            place += width
        if _ID.fullmatch(columns["JobArrayID"]):
            rows.setdefault(columns["JobArrayID"], Job(wanted, columns))
    return list(rows.values())


def of_interest(several: list[Job]) -> Job:
    """Of an array: the tasks that wait, else those that run."""
    return min(several, key=lambda job: (not job.waits, job["State"] != "RUNNING"))
