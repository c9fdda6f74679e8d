"""The plan for NVIDIA's driver on one node, from its facts, cluster.yml and the settings.

The packages of a driver are data (`deepops_nvidia_drivers` in group_vars/all/versions.yml). Sources: NVIDIA's driver
installation guide (kernel modules, compute-only installation, version locking) and the package lists of Debian.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deepopsctl.gpus.models import GpuModel, Modules, models_of
from deepopsctl.model.cluster import Gpus
from deepopsctl.text.problems import RefusedError

SOURCES = ("auto", "repository", "distro", "present")
MODULES = ("auto", "open", "proprietary", "none")
# the first branch whose open modules NVIDIA itself installs by default
OPEN_BY_DEFAULT = 560
# the last branch for Pascal and Volta
LAST_FOR_OLD = 580
# PCI device ids below are Pascal and Volta: no open modules
FIRST_TURING = 0x1E00
# Packages that apt pins to one branch: those of NVIDIA's driver, by name and by source package. Not all have NVIDIA in
# their name; a missing one would come from the newest branch and make the installation fail.
PACKAGE_NAMES = "*nvidia* cuda-drivers* libcuda1 libcudadebugger1 libnvcuvid1 libnvoptix1 libnvsdm libxnvctrl*"
PACKAGE_SOURCES = "src:*nvidia*:any src:cuda-drivers:any"
# HGX boards whose NVSwitches are not on the host's PCI bus; they also need NVIDIA's subnet manager
_HIDDEN_SWITCHES = frozenset({"b200", "b300"})
_HGX = 8


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings `nvidia_driver_*`. An empty branch is the first of the catalogue."""

    source: str = "auto"
    branch: str = ""
    modules: str = "auto"
    without_device: bool = False
    drain: bool = False


@dataclass(frozen=True, slots=True)
class DriverPlan:
    """The plan for a node. `state` is none, present or install; a problem is (message, hint).

    `replaces` is the version of an installed driver of another branch; `subnet`: a subnet manager configures the
    NVSwitches over InfiniBand; `with_kernel`: the modules are built for one kernel only, so other kernels would start
    without them.
    """

    state: str
    reason: str = ""
    source: str = ""
    branch: str = ""
    modules: str = ""
    packages: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    loads: bool = False
    subnet: bool = False
    with_kernel: bool = False
    replaces: str = ""
    problems: tuple[tuple[str, str], ...] = ()
    repository: Mapping[str, Any] = field(default_factory=dict)


def plan_driver(
    facts: Mapping[str, Any], platform: str, declared: Gpus | None, settings: Settings, catalogue: Mapping[str, Any]
) -> DriverPlan:
    """The plan for a node; `facts` are node_info's result `nvidia`, `platform` is `Debian 13`."""
    source = settings.source
    if source == "auto":
        there = facts["loaded"]["version"] or facts["library"]
        source = "present" if facts["dgx"] or (there and not facts["managed"]) else "repository"
    if source == "present":
        return _present(facts, settings)
    if not facts["gpus"] and not settings.without_device:
        count = declared.count if declared else 0
        return DriverPlan("none", f"cluster.yml declares {count} GPUs, and no NVIDIA device is on the PCI bus")
    try:
        return _install(facts, platform, _DriverRequest(source, declared, settings), catalogue)
    except RefusedError as refusal:
        return DriverPlan("install", problems=((refusal.message, refusal.hint),))


def _present(facts: Mapping[str, Any], settings: Settings) -> DriverPlan:
    """A driver not installed by deepopsctl: checked, never changed."""
    version, library = str(facts["loaded"]["version"]), str(facts["library"])
    problems: list[tuple[str, str]] = []
    if facts["gpus"] and not version:
        hint = "install it as the node's vendor documents, or set nvidia_driver_source: repository"
        problems.append(
            ("nvidia_driver_source expects a driver that deepopsctl did not install, but none is loaded", hint)
        )
    elif version and settings.branch and version.partition(".")[0] != settings.branch:
        hint = "update the image, or leave nvidia_driver_branch out"
        problems.append((f"driver {version} runs, branch {settings.branch} is wanted", hint))
    if version and library and version != library:
        hint = "drain the node and reboot it"
        problems.append((f"the kernel runs driver {version}, and {library} is installed", hint))
    return DriverPlan("present", source="present", problems=tuple(problems))


@dataclass(frozen=True, slots=True)
class _DriverRequest:
    source: str
    declared: Gpus | None
    settings: Settings

    @property
    def types(self) -> tuple[str, ...]:
        """The gres types of the node's GPUs; () if unknown."""
        if self.declared is None:
            return ()
        types = [group.type for group in self.declared.groups] or [self.declared.type]
        return tuple(gpu_type for gpu_type in types if gpu_type)

    @property
    def models(self) -> tuple[GpuModel, ...]:
        """All products of these types."""
        return tuple(model for gpu_type in self.types for model in models_of(gpu_type))


def _install(
    facts: Mapping[str, Any], platform: str, request: _DriverRequest, catalogue: Mapping[str, Any]
) -> DriverPlan:
    known = catalogue[request.source]
    if platform not in known:
        others = [name for name, table in catalogue.items() if platform in table]
        hint = f"set nvidia_driver_source: {others[0]}" if others else f"supported are {', '.join(known)}"
        raise RefusedError(f"no driver of the source `{request.source}` is known for {platform}", hint)
    entry = known[platform]
    branch = _branch(request, platform, entry)
    modules = "none" if facts["container"] else _modules(facts, request, branch)
    packages = entry["packages"]
    names = [*packages["user"], *(packages[modules] if modules != "none" else ())]
    hidden = (
        request.declared is not None and request.declared.count >= _HGX and bool(_HIDDEN_SWITCHES & set(request.types))
    )
    fabric = _fabric(facts, packages, platform, hidden=hidden)
    dkms = modules != "none" and entry["dkms"]
    if dkms:
        names += _headers(facts)
    flavour = facts["headers"]["meta"].removeprefix("linux-headers-") or "generic"
    plain = {"branch": branch, "flavour": flavour}
    return DriverPlan(
        "install",
        source=request.source,
        branch=branch,
        modules=modules,
        packages=tuple(name.format(**plain) for name in (*names, *fabric)),
        units=("nvidia-persistenced.service", *(["nvidia-fabricmanager.service"] if fabric else [])),
        loads=bool(facts["gpus"]) and modules != "none",
        subnet=hidden,
        with_kernel=modules != "none" and not dkms,
        replaces=str(facts["library"]) if _is_other(facts, branch) and facts["managed"] else "",
        problems=tuple(_obstacles(facts, branch, request.settings, dkms=dkms)),
        repository=dict(entry.get("repository") or {}),
    )


def _branch(request: _DriverRequest, platform: str, entry: Mapping[str, Any]) -> str:
    branches: Sequence[str] = entry["branches"]
    branch = request.settings.branch or branches[0]
    if branch not in branches:
        hint = f"set nvidia_driver_branch to one of {', '.join(branches)}, or another nvidia_driver_source"
        raise RefusedError(f"{platform} has no driver branch {branch} in the source `{request.source}`", hint)
    old = [model for model in request.models if model.modules is Modules.PROPRIETARY]
    if old and int(branch) > LAST_FOR_OLD:
        what = f"branch {branch} no longer drives {old[0].type}"
        raise RefusedError(what, f"set nvidia_driver_branch: '{LAST_FOR_OLD}' for these nodes")
    return branch


def _modules(facts: Mapping[str, Any], request: _DriverRequest, branch: str) -> str:
    """Open or proprietary kernel modules: what the GPUs need, else the setting, else the branch's default."""
    needs = {model.modules for model in request.models} - {Modules.EITHER}
    if not request.models and any(int(gpu["device"] or "0", 16) < FIRST_TURING for gpu in facts["gpus"]):
        needs.add(Modules.PROPRIETARY)
    wanted = request.settings.modules
    if len(needs) > 1:
        hint = "one kernel module drives all GPUs of a node: take the oldest or the newest out"
        raise RefusedError(f"no kernel modules drive {' and '.join(request.types)} together", hint)
    need = str(next(iter(needs), ""))
    if wanted in ("open", "proprietary") and need and wanted != need:
        what = f"{'+'.join(request.types) or 'this GPU'} needs the {need} kernel modules, not {wanted}"
        raise RefusedError(what, "leave nvidia_driver_modules at `auto`")
    if wanted != "auto":
        return wanted
    return need or ("open" if int(branch) >= OPEN_BY_DEFAULT else "proprietary")


def _fabric(facts: Mapping[str, Any], packages: Mapping[str, Any], platform: str, *, hidden: bool) -> Sequence[str]:
    """Packages of the fabric manager, if the node has NVSwitches."""
    if not facts["nvswitches"] and not hidden:
        return ()
    if not packages.get("fabric"):
        what = f"this node has NVSwitches, and {platform} packages no fabric manager: no GPU would start"
        raise RefusedError(what, "set nvidia_driver_source: repository")
    if hidden and not packages["subnet"]:
        what = f"the NVSwitches of this board need NVIDIA's subnet manager, which {platform} does not package"
        raise RefusedError(what, "set nvidia_driver_source: repository")
    return [*packages["fabric"], *(packages["subnet"] if hidden else ())]


def _headers(facts: Mapping[str, Any]) -> list[str]:
    """Headers of the running kernel, and the meta package for later kernels."""
    headers = facts["headers"]
    if not headers["installed"] and not headers["available"]:
        what = f"the package sources have no headers for the running kernel {facts['kernel']}"
        hint = "start the newest kernel they have (apt-get install linux-image-..., then reboot), then deploy again"
        raise RefusedError(what, hint)
    return [*([headers["package"]] if headers["available"] else []), *([headers["meta"]] if headers["meta"] else [])]


def _is_other(facts: Mapping[str, Any], branch: str) -> bool:
    """Whether a driver of another branch is installed."""
    return bool(facts["library"]) and str(facts["library"]).partition(".")[0] != branch


def _obstacles(facts: Mapping[str, Any], branch: str, settings: Settings, *, dkms: bool) -> Iterator[tuple[str, str]]:
    if facts["run_installer"]:
        yield (
            f"a driver of NVIDIA's .run installer is there ({facts['run_installer']})",
            "remove it on the drained node with `nvidia-uninstall`; to keep it, set nvidia_driver_source: present",
        )
    elif _is_other(facts, branch):
        there = f"driver {facts['library']} is installed, branch {branch} is wanted"
        if not facts["managed"]:
            hint = "to keep it, set nvidia_driver_source: present; else remove its packages on the drained node"
            yield f"{there}, and deepopsctl did not install it", hint
        elif not (facts["idle"] or settings.drain):
            hint = "drain the node, wait for its jobs, deploy again; or let deploy do that: nvidia_driver_drain"
            yield f"{there}, and jobs run or may start here", hint
    if dkms and facts["secure_boot"] and not facts["mok_enrolled"]:
        hint = (
            "turn it off; or install dkms there, then `dkms generate_mok`, `mokutil --import /var/lib/dkms/mok.pub`, "
            "reboot, and enrol the key at the console"
        )
        yield "Secure Boot is on, and the firmware does not know the key that DKMS signs with", hint
