"""The CUDA toolkits of a node: packages, source and module files.

Available toolkits, and the driver that each needs, are data (`deepops_cuda` and `deepops_nvidia_drivers` in
group_vars/all/versions.yml).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deepopsctl.text.header import MANAGED_HEADER

SOURCES = ("repository", "distro")
MODULE = "cuda"
_VERSION = re.compile(r"(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class Toolkit:
    """One version: its package, the directory for CUDA_HOME, and its subdirectories by path variable."""

    version: str
    package: str
    home: str
    directories: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class ToolkitPlan:
    """The toolkits of a node, oldest first, the default of `module load cuda`, and problems."""

    toolkits: tuple[Toolkit, ...] = ()
    default: str = ""
    problems: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ToolkitRequest:
    """The settings `cuda_*`."""

    versions: Sequence[str]
    source: str = "repository"
    default: str = ""


@dataclass(frozen=True, slots=True)
class CudaHost:
    """A node: platform (`Debian 13`), its driver's version or branch ('' for none), the distribution's driver."""

    platform: str
    driver: str = ""
    distro_driver: str = ""


def plan_toolkits(request: ToolkitRequest, host: CudaHost, catalogue: Mapping[str, Any]) -> ToolkitPlan:
    """The plan for a node."""
    misspelt = [version for version in request.versions if not _VERSION.fullmatch(version)]
    if misspelt:
        hint = "write major and minor version in quotes: cuda_toolkits: ['12.8', '13.0']"
        return ToolkitPlan(problems=((f"{', '.join(misspelt)} is not a version of CUDA", hint),))
    versions = sorted(set(request.versions), key=_number)
    default = request.default or (versions[-1] if versions else "")
    problems = [
        *_missing(versions, request.source, host, catalogue),
        *_unserved(versions, host.driver, catalogue["drivers"]),
        *([] if default in ("", *versions) else [_no_default(default)]),
    ]
    toolkits = tuple(_toolkit(version, request.source, catalogue) for version in versions)
    return ToolkitPlan(toolkits, default, tuple(problems))


def module_files(plan: ToolkitPlan, root: str) -> dict[str, str]:
    """{path: text} of the module files below the directory `root`; none without a toolkit.

    Tcl, because both Lmod and Environment Modules read it.
    """
    files = {f"{root}/{MODULE}/{toolkit.version}": _module_file(toolkit) for toolkit in plan.toolkits}
    if plan.toolkits:
        # both read this name
        files[f"{root}/{MODULE}/.version"] = f'#%Module1.0\n{MANAGED_HEADER}set ModulesVersion "{plan.default}"\n'
    return files


def profile_script(root: str) -> str:
    """For /etc/profile.d: adds the directory `root` to MODULEPATH of any installed module system."""
    return f"""{MANAGED_HEADER}# after the module system's own; without one there is no MODULEPATH
case ":${{MODULEPATH-}}:" in
    :: | *:{root}:*) ;;
    *) export MODULEPATH="$MODULEPATH:{root}" ;;
esac
"""


def _branch(driver: str) -> int:
    return int(driver.partition(".")[0] or 0)


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _no_default(default: str) -> tuple[str, str]:
    return f"cuda_default is {default}, which is not in cuda_toolkits", "add it there, or leave cuda_default out"


def _missing(versions: Sequence[str], source: str, host: CudaHost, catalogue: Mapping[str, Any]) -> Iterator[Any]:
    """Problems with the source; whether NVIDIA's repository has a version is not checked."""
    known, platform = catalogue[source]["platforms"], host.platform
    if not versions:
        return
    if platform not in known:
        yield f"no CUDA toolkit of the source `{source}` is known for {platform}", f"known are {', '.join(known)}"
    elif source == "distro" and versions != [known[platform]]:
        hint = f"set cuda_toolkits: ['{known[platform]}'], or cuda_source: repository"
        yield f"{platform} packages CUDA {known[platform]} and no other", hint
    elif source == "distro" and host.driver and _branch(host.driver) != _branch(host.distro_driver):
        what = f"{platform}'s toolkit brings its own driver's libraries ({host.distro_driver})"
        yield f"{what}, this node's driver is {host.driver}", "set cuda_source: repository, which brings none"


def _unserved(versions: Sequence[str], driver: str, drivers: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Toolkits that need a newer driver than the node has."""
    for version in versions:
        major = version.partition(".")[0]
        if major not in drivers:
            hint = f"the table of drivers (deepops_cuda in versions.yml) ends with {list(drivers)[-1]}"
            yield f"which driver CUDA {version} needs is not known", hint
        elif driver and _branch(driver) < drivers[major]:
            hint = (
                f"take {version} out of cuda_toolkits for this node (inventory/host_vars), "
                f"or give it a newer driver (nvidia_driver_source, nvidia_driver_branch)"
            )
            yield f"CUDA {version} needs driver {drivers[major]} or later, this node's is {driver}", hint


def _toolkit(version: str, source: str, catalogue: Mapping[str, Any]) -> Toolkit:
    entry = catalogue[source]
    major, _, minor = version.partition(".")
    names = {"major": major, "minor": minor}
    return Toolkit(version, entry["package"].format(**names), entry["home"].format(**names), entry["directories"])


def _module_file(toolkit: Toolkit) -> str:
    what = f"CUDA toolkit {toolkit.version}"
    lines = [
        "#%Module1.0",
        MANAGED_HEADER.rstrip(),
        f'proc ModulesHelp {{}} {{ puts stderr "{what} in {toolkit.home}: compiler, libraries, headers" }}',
        f'module-whatis "{what}: compiler, libraries, headers"',
        "# one at a time",
        f"conflict {MODULE}",
        *(f"setenv {name} {toolkit.home}" for name in ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT")),
        *(
            f"prepend-path {name} {toolkit.home}/{directory}"
            for name, directories in toolkit.directories.items()
            for directory in reversed(directories)
        ),
    ]
    return "\n".join(lines) + "\n"
