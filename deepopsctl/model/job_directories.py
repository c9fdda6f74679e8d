"""Directories of a job's own, as cluster.yml asks for them."""

from __future__ import annotations

from dataclasses import asdict, dataclass

_TMP, _VAR_TMP, _SHM = "/tmp", "/var/tmp", "/dev/shm"  # noqa: S108 - names for Slurm


@dataclass(frozen=True, slots=True)
class JobDirectories:
    """How each job gets folders that are its alone. `base` is where on the nodes' disks they are."""

    base: str = "/var/spool"
    method: str = "namespace"
    var_tmp: bool = False
    shm: bool = True

    @property
    def directory(self) -> str:
        """The folder that has one of each job. Its own: Slurm removes what has a number there and belongs to no job."""
        return f"{self.base}/slurm-jobs"

    @property
    def private(self) -> tuple[str, ...]:
        """What a job has for itself where others have the node's; the first is its $SLURM_TMPDIR."""
        if self.method != "namespace":
            return ()
        return (_TMP, *([_VAR_TMP] if self.var_tmp else []), *([_SHM] if self.shm else []))

    def written(self) -> dict[str, object]:
        """As a person would write it: what is not a default."""
        default = asdict(JobDirectories())
        return {key: value for key, value in asdict(self).items() if value != default[key]}

    def variable(self) -> dict[str, object]:
        """As the inventory has it; roles need the folder, too."""
        return {**asdict(self), "folder": self.directory, "private": list(self.private)}

    @property
    def programs(self) -> tuple[str, ...]:
        """The keys of slurm.conf whose programs are ours, with a site's called by them."""
        return ("Epilog", "TaskProlog") if self.method == "namespace" else ("Prolog", "Epilog", "TaskProlog")
