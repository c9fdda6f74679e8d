"""Private directories of jobs: `job_directories` of cluster.yml, and the Slurm settings that follow from it.

Sources: job_container.conf(5) and slurm.conf(5) of Slurm 22.05 and 24.11, and the plugin's source of both.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from deepopsctl.model.cluster import TMP, VAR_TMP, JobDirectories
from deepopsctl.node_programs._shared.own_programs import JOB_PROGRAMS, own_among
from deepopsctl.text.answers import items, listed, texts
from deepopsctl.text.header import MANAGED_HEADER_FROM_CLUSTER
from deepopsctl.text.node_sets import expand, shorten
from deepopsctl.text.problems import RefusedError

# `Dirs` and `Shared` of the plugin exist since this release; before, only /tmp and /dev/shm are private.
CHOOSES_SINCE = (23, 2)
PLUGIN = "job_container/tmpfs"
METHODS = ("namespace", "prolog")
# Programs around jobs on the nodes.
PIECES = JOB_PROGRAMS
PROGRAMS = {"Prolog": "prolog", "Epilog": "epilog", "TaskProlog": "task_prolog"}

# the count-only gres of local disk
DISK = "tmpdisk"

_SIZE = re.compile(r"[1-9][0-9]{0,6}[MGT]")
_PATH = re.compile(r"(/[A-Za-z0-9_.-]+)+")
# a path, or a pattern for several, as in slurm.conf
_PROGRAM = re.compile(r"/[A-Za-z0-9_./*?\[\]-]+")
# private to jobs already, or not usable
_NO_BASE = (
    TMP, VAR_TMP, "/dev", "/proc", "/sys", "/run", "/etc", "/usr", "/boot",
    "/root", "/bin", "/sbin", "/lib", "/lib64",
)  # fmt: skip


def from_inventory(variable: Mapping[str, object] | None) -> JobDirectories | None:
    """Parse the inventory variable; None without it."""
    if not variable:
        return None
    return JobDirectories(
        base=str(variable["base"]),
        method=str(variable["method"]),
        var_tmp=variable["var_tmp"] is True,
        shm=variable["shm"] is True,
        space=_space_of(variable.get("space")),
        share=str(variable.get("share", "")),
    )


def _space_of(written: object) -> tuple[tuple[str, str], ...]:
    return tuple((names, size) for names, size in map(texts, items(written)))


def check_size(text: str) -> str:
    """A size as Slurm counts it, by powers of 1024."""
    if not _SIZE.fullmatch(text):
        raise RefusedError(f"{shorten(text)!r} is not a valid size", "write 500M, 800G or 2T")
    return text


def parse_space(written: object, compute: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """(node set, size) each, of all compute nodes."""
    if not isinstance(written, dict):
        return (("", check_size(str(written))),)
    space = tuple((str(names), check_size(str(size))) for names, size in written.items())
    named, known = Counter(name for names, _ in space for name in expand(names)), frozenset(compute)
    for wrong, what, hint in (
        ([name for name in named if name not in known], "is not a compute node", "name compute nodes"),
        ([name for name in compute if name not in named], "has no size", "name every compute node"),
        ([name for name in compute if named[name] > 1], "has two sizes", "name it once"),
    ):
        if wrong:
            raise RefusedError(f"{wrong[0]} {what}", hint)
    return space


def check_share(text: str, space: Iterable[tuple[str, str]]) -> str:
    """The size for a job that requests nothing, '' for none: Slurm would start no such job on a node with less."""
    if text:
        check_size(text)
    for _, size in space:
        if text and _mebibytes(text) > _mebibytes(size):
            raise RefusedError(f"{text} is more than the {size} of `space`", "write what a job on each node can have")
    return text


def _mebibytes(size: str) -> int:
    return int(size[:-1]) << {"M": 0, "G": 10, "T": 20}[size[-1]]


def disk_sizes(directories: JobDirectories | None, nodes: Sequence[str]) -> dict[str, str]:
    """What jobs may have of each node's disk, by name; without nodes where it is not counted."""
    space = directories.space if directories else ()
    return {name: size for names, size in space for name in (expand(names) if names else nodes)}


def check_base(text: str, shared: Mapping[str, str]) -> str:
    """Check a directory on the nodes' local disks; `shared` has the type of each shared mount."""
    path = text.rstrip("/")
    if not _PATH.fullmatch(path) or posixpath.normpath(path) != path:
        raise RefusedError(f"{text} is not an absolute path of plain letters", "write base: /scratch")
    for reserved in _NO_BASE:
        if path == reserved or path.startswith(f"{reserved}/"):
            raise RefusedError(
                f"{text} is in {reserved}", "name a directory on a local disk of the nodes: base: /scratch"
            )
    for mount, storage_type in shared.items():
        if path == mount or path.startswith(f"{mount}/"):
            refusal = f"{text} is in {mount}, which several nodes mount ({storage_type})"
            raise RefusedError(refusal, "name a directory on a local disk of each node: base: /scratch")
    return path


def check_method(text: str) -> str:
    """`namespace` or `prolog`."""
    if text not in METHODS:
        raise RefusedError(f"{text} is none of {' and '.join(METHODS)}", "leave it out for namespace")
    return text


def container_conf(directories: JobDirectories | None, version: tuple[int, int]) -> str:
    """The text of job_container.conf for a release of Slurm ((0, 0) if unknown); '' for none."""
    if directories is None or directories.method != "namespace":
        return ""
    lines = [
        MANAGED_HEADER_FROM_CLUSTER.rstrip(),
        "AutoBasePath=true",
        f"BasePath={directories.directory}",
    ]
    if version >= CHOOSES_SINCE or version == (0, 0):
        # Shared: later mounts of the node, such as automounts, are visible in the job
        lines += [f"Dirs={','.join(directories.private)}", "Shared=true"]
    elif directories.var_tmp or not directories.shm:
        raise RefusedError(
            f"Slurm {version[0]}.{version[1]:02d} makes /tmp and /dev/shm private to a job, no more and no less",
            "leave var_tmp and shm out of job_directories in cluster.yml",
        )
    return "\n".join(lines) + "\n"


def with_job_directories(settings: Mapping[str, object], directories: JobDirectories | None) -> dict[str, object]:
    """The settings of slurm.conf with those for job directories; deepopsctl's programs call the site's."""
    if directories is None:
        return dict(settings)
    managed: dict[str, object] = {key: f"{PIECES}/{PROGRAMS[key]}" for key in directories.programs}
    if directories.method == "namespace":
        managed["JobContainerType"] = PLUGIN
    replaced = {key.lower() for key in managed}
    # the cleanup recognises running jobs by their extern step
    return with_contain({**{key: value for key, value in settings.items() if key.lower() not in replaced}, **managed})


def with_contain(settings: Mapping[str, object]) -> dict[str, object]:
    """The settings with PrologFlags=Contain: an extern step on each node until the job ends."""
    flags_key = next((key for key in settings if key.lower() == "prologflags"), "PrologFlags")
    flags = _words(settings.get(flags_key, ""))
    if not {"contain", "x11"} & {flag.lower() for flag in flags}:
        flags.append("Contain")
    named = {"PrologFlags" if key == flags_key else key: value for key, value in settings.items()}
    return {**named, "PrologFlags": ",".join(flags)}


def with_job_script(settings: Mapping[str, object]) -> dict[str, object]:
    """The settings with job_submit.lua, before other plugins that a site has."""
    key = next((key for key in settings if key.lower() == "jobsubmitplugins"), "JobSubmitPlugins")
    plugins = [word.removeprefix("job_submit/") for word in _words(settings.get(key, ""))]
    return {**settings, key: ",".join(dict.fromkeys(["lua", *plugins]))}


def own_programs_in(settings: Mapping[str, object]) -> list[str]:
    """Messages for keys that name a program of deepopsctl's own, which would call itself."""
    return [
        f"{key}: {own} is deepopsctl's own program: it runs without this line, and named here it would call itself; "
        "remove the line, or name the site's program"
        for key, value in sorted(settings.items())
        if value is not None and (own := own_among(value))
    ]


def refused_in(extra: Mapping[str, object], directories: JobDirectories | None) -> list[str]:
    """Messages for keys of `slurm_config` that conflict with `job_directories`."""
    if directories is None:
        return []
    refusals = []
    managed = {key.lower() for key in directories.programs}
    for key, value in sorted(extra.items()):
        if key.lower() == "jobcontainertype" and value is not None:
            refusals.append(f"{key} is set by deepopsctl: it follows from job_directories in cluster.yml")
        elif key.lower() in managed and (sentence := program_refusal(key, value, "job_directories")):
            refusals.append(sentence)
    return refusals + refused_flags(extra, "job_directories")


def refused_flags(extra: Mapping[str, object], because_of: str) -> list[str]:
    """Messages for PrologFlags that conflict with Contain, which `because_of` needs; slurmctld would not start."""
    flags = [(key, _words(value)) for key, value in sorted(extra.items()) if key.lower() == "prologflags"]
    clash = [key for key, words in flags if "nohold" in (word.lower() for word in words)]
    return [f"{key}: NoHold does not go with {because_of}, which needs Contain" for key in clash]


def program_refusal(key: str, value: object, because_of: str) -> str:
    """Why deepopsctl's program, which `because_of` needs, can't call the site's program; '' if it can."""
    if value is None or _PROGRAM.fullmatch(str(value)):
        return ""
    return f"{key}: with {because_of} it must be an absolute path or pattern, and {value} is none"


def site_programs(extra: Mapping[str, object]) -> dict[str, str]:
    """The programs of `slurm_config` that deepopsctl's programs call: {"prolog": "/etc/site/prolog"}."""
    names = {key.lower(): name for key, name in PROGRAMS.items()}
    return {names[key.lower()]: str(value) for key, value in extra.items() if key.lower() in names and value}


def _words(value: object) -> list[str]:
    words = [str(word) for word in value] if isinstance(value, list) else str(value or "").split(",")
    return [word.strip() for word in words if word.strip()]


# the map is written before a job and removed after it
MAPPED = ("Prolog", "Epilog")


def keys_called(extra: Mapping[str, object], *, monitored: bool) -> list[str]:
    """The keys for which slurm.conf names deepopsctl's program, which calls the site's.

    Besides monitoring's those with a pattern: where it matches nothing, slurmd drains the node (_script_list_create()
    of its prep_script_slurmd.c), and for TaskProlog Slurm knows no patterns.
    """
    patterns = {key.lower() for key, value in extra.items() if is_pattern(value)}
    return [key for key in PROGRAMS if (monitored and key in MAPPED) or key.lower() in patterns]


def is_pattern(value: object) -> bool:
    """Whether it may stand for several files."""
    return any(letter in str(word) for word in listed(value) for letter in "*?[")


def with_job_map(extra: Mapping[str, object], *, monitored: bool) -> dict[str, object]:
    """`slurm_config` with deepopsctl's programs, which call the site's own."""
    keys = keys_called(extra, monitored=monitored)
    replaced = {key.lower() for key in keys}
    site_settings = {key: value for key, value in extra.items() if key.lower() not in replaced}
    return {**site_settings, **{key: f"{PIECES}/{PROGRAMS[key]}" for key in keys}}


def refused_with_job_map(extra: Mapping[str, object], *, monitored: bool) -> list[str]:
    """Messages for programs of the site that deepopsctl's can't call."""
    called = {key.lower() for key in keys_called(extra, monitored=monitored)}
    refusals = (
        program_refusal(key, value, "a pattern" if is_pattern(value) else "monitoring")
        for key, value in sorted(extra.items())
        if key.lower() in called
    )
    return [sentence for sentence in refusals if sentence]
