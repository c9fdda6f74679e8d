"""Private directories of jobs (`job_directories` of cluster.yml)."""

from __future__ import annotations

from dataclasses import asdict, dataclass

_TMP, _VAR_TMP, _SHM = "/tmp", "/var/tmp", "/dev/shm"  # noqa: S108 - names for Slurm


@dataclass(frozen=True, slots=True)
class JobDirectories:
    """Private directories for each job. `base` is their location on the nodes' local disks."""

    base: str = "/var/spool"
    method: str = "namespace"
    var_tmp: bool = False
    shm: bool = True

    @property
    def directory(self) -> str:
        """One subdirectory per job, and nothing else: Slurm removes numbered entries that belong to no job."""
        return f"{self.base}/slurm-jobs"

    @property
    def private(self) -> tuple[str, ...]:
        """The directories that each job has privately; the first is its $SLURM_TMPDIR."""
        if self.method != "namespace":
            return ()
        return (_TMP, *([_VAR_TMP] if self.var_tmp else []), *([_SHM] if self.shm else []))

    def written(self) -> dict[str, object]:
        """The non-default values, as in cluster.yml."""
        default = asdict(JobDirectories())
        return {key: value for key, value in asdict(self).items() if value != default[key]}

    def variable(self) -> dict[str, object]:
        """The inventory variable; `folder` is for the roles."""
        return {**asdict(self), "folder": self.directory, "private": list(self.private)}

    @property
    def programs(self) -> tuple[str, ...]:
        """The keys of slurm.conf whose programs deepopsctl installs; those call the site's programs."""
        return ("Epilog", "TaskProlog") if self.method == "namespace" else ("Prolog", "Epilog", "TaskProlog")
