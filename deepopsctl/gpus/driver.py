"""What NVIDIA's driver takes on one node: from what was found there, what cluster.yml declares and the settings.

Which packages make a driver is data (`deepops_nvidia_drivers` in group_vars/all/versions.yml). Sources: NVIDIA's driver
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
# What apt has to keep on one branch: the packages of NVIDIA's driver, by name and by the source they are made from.
# Not all have NVIDIA in their name, and one that is left out is taken from the newest branch: then nothing installs.
PACKAGE_NAMES = "*nvidia* cuda-drivers* libcuda1 libcudadebugger1 libnvcuvid1 libnvoptix1 libnvsdm libxnvctrl*"
PACKAGE_SOURCES = "src:*nvidia*:any src:cuda-drivers:any"
# HGX boards whose NVSwitches are not on the PCI bus of the host; they need NVIDIA's subnet manager, too
_HIDDEN_SWITCHES = frozenset({"b200", "b300"})
_HGX = 8


@dataclass(frozen=True, slots=True)
class Settings:
    """What a site chooses: `nvidia_driver_*`. An empty branch is the first that the catalogue has."""

    source: str = "auto"
    branch: str = ""
    modules: str = "auto"
    without_device: bool = False
    drain: bool = False


@dataclass(frozen=True, slots=True)
class DriverPlan:
    """What happens on the node. `state` is none, present or install; a problem is (message, hint).

    `replaces` is the version of a driver of another branch that is there; `subnet` says that a subnet manager programs
    the NVSwitches, over InfiniBand's management; `with_kernel` that the modules are for one kernel each, and another
    kernel would start without them.
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
    found: Mapping[str, Any], platform: str, declared: Gpus | None, given: Settings, catalogue: Mapping[str, Any]
) -> DriverPlan:
    """The plan for a node; `found` is nvidia_facts' answer, `platform` is `Debian 13`."""
    source = given.source
    if source == "auto":
        there = found["loaded"]["version"] or found["library"]
        source = "present" if found["dgx"] or (there and not found["ours"]) else "repository"
    if source == "present":
        return _present(found, given)
    if not found["gpus"] and not given.without_device:
        count = declared.count if declared else 0
        return DriverPlan("none", f"cluster.yml declares {count} GPUs, and no NVIDIA device is on the PCI bus")
    try:
        return _install(found, platform, _Wish(source, declared, given), catalogue)
    except RefusedError as refusal:
        return DriverPlan("install", problems=((refusal.message, refusal.hint),))


def _present(found: Mapping[str, Any], given: Settings) -> DriverPlan:
    """A driver that came with the system, or that somebody else installed: looked at, never touched."""
    version, library = str(found["loaded"]["version"]), str(found["library"])
    problems: list[tuple[str, str]] = []
    if found["gpus"] and not version:
        hint = "install it as the machine's vendor says, or set nvidia_driver_source: repository"
        problems.append(("a driver should be there that deepopsctl did not install, and none runs", hint))
    elif version and given.branch and version.partition(".")[0] != given.branch:
        hint = "update the image, or leave nvidia_driver_branch out"
        problems.append((f"driver {version} runs, branch {given.branch} is wanted", hint))
    if version and library and version != library:
        hint = "drain the node and reboot it"
        problems.append((f"the kernel runs driver {version}, and {library} is installed", hint))
    return DriverPlan("present", source="present", problems=tuple(problems))


@dataclass(frozen=True, slots=True)
class _Wish:
    source: str
    declared: Gpus | None
    given: Settings

    @property
    def types(self) -> tuple[str, ...]:
        """The gres types of the node's GPUs; () where none is known."""
        if self.declared is None:
            return ()
        kinds = [kind.type for kind in self.declared.kinds] or [self.declared.type]
        return tuple(kind for kind in kinds if kind)

    @property
    def models(self) -> tuple[GpuModel, ...]:
        """All products that these types may be."""
        return tuple(model for kind in self.types for model in models_of(kind))


def _install(found: Mapping[str, Any], platform: str, wish: _Wish, catalogue: Mapping[str, Any]) -> DriverPlan:
    known = catalogue[wish.source]
    if platform not in known:
        others = [name for name, table in catalogue.items() if platform in table]
        hint = f"set nvidia_driver_source: {others[0]}" if others else f"supported are {', '.join(known)}"
        raise RefusedError(f"no driver of the source `{wish.source}` is known for {platform}", hint)
    entry = known[platform]
    branch = _branch(wish, platform, entry)
    modules = "none" if found["container"] else _modules(found, wish, branch)
    packages = entry["packages"]
    names = [*packages["user"], *(packages[modules] if modules != "none" else ())]
    hidden = _has_hidden_switches(wish)
    fabric = _fabric(found, packages, platform, hidden=hidden)
    dkms = modules != "none" and entry["dkms"]
    if dkms:
        names += _headers(found)
    flavour = found["headers"]["meta"].removeprefix("linux-headers-") or "generic"
    plain = {"branch": branch, "flavour": flavour}
    return DriverPlan(
        "install",
        source=wish.source,
        branch=branch,
        modules=modules,
        packages=tuple(name.format(**plain) for name in (*names, *fabric)),
        units=("nvidia-persistenced.service", *(["nvidia-fabricmanager.service"] if fabric else [])),
        loads=bool(found["gpus"]) and modules != "none",
        subnet=hidden,
        with_kernel=modules != "none" and not dkms,
        replaces=str(found["library"]) if _is_other(found, branch) and found["ours"] else "",
        problems=tuple(_obstacles(found, branch, wish.given, dkms=dkms)),
        repository=dict(entry.get("repository") or {}),
    )


def _branch(wish: _Wish, platform: str, entry: Mapping[str, Any]) -> str:
    branches: Sequence[str] = entry["branches"]
    branch = wish.given.branch or branches[0]
    if branch not in branches:
        hint = f"set nvidia_driver_branch to one of {', '.join(branches)}, or another nvidia_driver_source"
        raise RefusedError(f"{platform} has no driver branch {branch} in the source `{wish.source}`", hint)
    old = [model for model in wish.models if model.modules is Modules.PROPRIETARY]
    if old and int(branch) > LAST_FOR_OLD:
        what = f"branch {branch} no longer drives {old[0].type}"
        raise RefusedError(what, f"set nvidia_driver_branch: '{LAST_FOR_OLD}' for these nodes")
    return branch


def _modules(found: Mapping[str, Any], wish: _Wish, branch: str) -> str:
    """Open or proprietary kernel modules: what the GPUs need, else what is wanted, else the branch's default."""
    needs = {model.modules for model in wish.models} - {Modules.EITHER}
    if not wish.models and any(int(gpu["device"] or "0", 16) < FIRST_TURING for gpu in found["gpus"]):
        needs.add(Modules.PROPRIETARY)
    wanted = wish.given.modules
    if len(needs) > 1:
        hint = "one kernel module drives all GPUs of a machine: take the oldest or the newest out"
        raise RefusedError(f"no kernel modules drive {' and '.join(wish.types)} together", hint)
    need = str(next(iter(needs), ""))
    if wanted in ("open", "proprietary") and need and wanted != need:
        what = f"{'+'.join(wish.types) or 'this GPU'} needs the {need} kernel modules, not {wanted}"
        raise RefusedError(what, "leave nvidia_driver_modules at `auto`")
    if wanted != "auto":
        return wanted
    return need or ("open" if int(branch) >= OPEN_BY_DEFAULT else "proprietary")


def _has_hidden_switches(wish: _Wish) -> bool:
    return wish.declared is not None and wish.declared.count >= _HGX and bool(_HIDDEN_SWITCHES & set(wish.types))


def _fabric(found: Mapping[str, Any], packages: Mapping[str, Any], platform: str, *, hidden: bool) -> Sequence[str]:
    """Packages of the fabric manager where the machine has NVSwitches."""
    if not found["nvswitches"] and not hidden:
        return ()
    if not packages.get("fabric"):
        what = f"this machine has NVSwitches, and {platform} packages no fabric manager: no GPU would start"
        raise RefusedError(what, "set nvidia_driver_source: repository")
    if hidden and not packages["subnet"]:
        what = f"the NVSwitches of this board need NVIDIA's subnet manager, which {platform} does not package"
        raise RefusedError(what, "set nvidia_driver_source: repository")
    return [*packages["fabric"], *(packages["subnet"] if hidden else ())]


def _headers(found: Mapping[str, Any]) -> list[str]:
    """Headers of the running kernel, and the package that follows it to the next one."""
    headers = found["headers"]
    if not headers["installed"] and not headers["available"]:
        what = f"the package sources have no headers for the running kernel {found['kernel']}"
        hint = "start the newest kernel they have (apt-get install linux-image-..., then reboot), then deploy again"
        raise RefusedError(what, hint)
    return [*([headers["package"]] if headers["available"] else []), *([headers["meta"]] if headers["meta"] else [])]


def _is_other(found: Mapping[str, Any], branch: str) -> bool:
    """Whether a driver of another branch is installed."""
    return bool(found["library"]) and str(found["library"]).partition(".")[0] != branch


def _obstacles(found: Mapping[str, Any], branch: str, given: Settings, *, dkms: bool) -> Iterator[tuple[str, str]]:
    if found["run_installer"]:
        yield (
            f"a driver of NVIDIA's .run installer is there ({found['run_installer']})",
            "remove it on the drained node with `nvidia-uninstall`; to keep it, set nvidia_driver_source: present",
        )
    elif _is_other(found, branch):
        there = f"driver {found['library']} is installed, branch {branch} is wanted"
        if not found["ours"]:
            hint = "to keep it, set nvidia_driver_source: present; else remove its packages on the drained node"
            yield f"{there}, and deepopsctl did not install it", hint
        elif not (found["idle"] or given.drain):
            hint = "drain the node, wait for its jobs, deploy again; or let deploy do that: nvidia_driver_drain"
            yield f"{there}, and jobs run or may start here", hint
    if dkms and found["secure_boot"] and not found["mok_enrolled"]:
        hint = (
            "turn it off; or install dkms there, then `dkms generate_mok`, `mokutil --import /var/lib/dkms/mok.pub`, "
            "reboot, and enrol the key at the console"
        )
        yield "Secure Boot is on, and the firmware does not know the key that DKMS signs with", hint
