"""The running kernel of a node: its modules, its headers, and the packages that would install another one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    command as node_command,
    errors as node_errors,
    files as node_files,
    packages as node_packages,
    record as node_record,
    step as node_step,
)

MODULES = "/lib/modules"
LOADED = "/sys/module"
LOAD_AT_START = "/etc/modules-load.d"
BUILD_S = 900
# packages by which upgrades install kernels: the images and headers, and the packages that always depend on the newest
_KERNEL = re.compile(r"linux-(image|headers|modules)-.+|linux-(generic|virtual|image|headers)(-.+)?")
# rebuilt for every kernel, and no kernel themselves
_NO_KERNEL = re.compile(r"linux-(image|headers)-.*-(dbg|dbgsym)|linux-headers-.*-common.*")


class KernelError(node_errors.HintedError):
    """The running kernel does not go together with what is wanted."""


def running() -> str:
    """The release, as modules are made for it."""
    return os.uname().release


def has_module(name: str, release: str, root: str = MODULES) -> bool:
    """Whether a module's file is there for a kernel; whether that can load it is seen when it does."""
    file = re.compile(rf"{re.sub('[-_]', '[-_]', name)}\.ko(\.(gz|xz|zst))?")
    return any(
        file.fullmatch(entry)
        for _directory, _subdirectories, files in os.walk(os.path.join(root, release))
        for entry in files
    )


def has_headers(release: str, root: str = MODULES) -> bool:
    """Whether a module can be compiled for a kernel."""
    return os.path.isdir(os.path.join(root, release, "build"))


def headers_package(release: str) -> str:
    """The package that has the headers of a kernel."""
    return f"linux-headers-{release}"


def packages_in(names: Iterable[str]) -> list[str]:
    """Those of the packages that are a kernel, or install a newer one."""
    return sorted(name for name in names if _KERNEL.fullmatch(name) and not _NO_KERNEL.fullmatch(name))


def installed() -> list[str]:
    """The same of this node."""
    return packages_in(node_packages.installed(["linux-*"]))


def check_headers(what: str, release: str) -> None:
    """Raises KernelError where a module can be compiled neither now nor with a package that apt knows."""
    name = headers_package(release)
    if has_headers(release) or node_packages.candidates([name]) or node_packages.installed([name]):
        return
    others = [other for other in node_packages.known("linux-headers-") if re.search(r"-\d", other)]
    known = " ".join(others[-4:]) or "none: run `apt-get update` on the node, and check its sources"
    raise KernelError(
        f"{what}: its module can't be compiled, there is no {name} for the running kernel",
        f"reboot the drained node into a kernel that the package sources have headers of ({known}), then deploy again",
    )


def check_module(what: str, name: str, release: str) -> None:
    """Raises KernelError where a module is not there for the running kernel."""
    if has_module(name, release):
        return
    built = node_packages.output(["dkms", "status"]).strip() if os.path.exists("/usr/sbin/dkms") else ""
    raise KernelError(
        f"{what}: there is no module {name} for the running kernel {release}{built and f' ({built})'}",
        "`dkms autoinstall` on the node shows why, or reboot the drained node into the kernel that it was made for",
    )


def load_file(name: str) -> str:
    """The file by which systemd loads a module at every start."""
    return os.path.join(LOAD_AT_START, f"deepopsctl-{name}.conf")


def state_file(name: str) -> str:
    """The file that is there while a module is loaded; one that is part of the kernel itself has none."""
    return os.path.join(LOADED, name.replace("-", "_"), "initstate")


def ensure_module(step: node_step.Step, wanted: Mapping[str, Any]) -> None:
    """Load a module now and at every start, or no longer at the next one."""
    name, path = wanted["name"], load_file(wanted["name"])
    if not wanted["loaded"]:
        if node_files.remove(step.noted, path):
            step.actions.append(f"removed {path}")
        step.record["files"][path] = None
        return
    if node_files.ensure(step.noted, path, (node_files.HEADER + name + "\n").encode()):
        step.actions.append(f"wrote {path}")
    may_load = not wanted["requires"] or os.path.exists(state_file(wanted["requires"]))
    if may_load and not os.path.exists(state_file(name)):
        step.did(f"loaded {name}", "module", name, "load")
        if not step.dry:
            load(wanted)
    for recorded in (path, state_file(name)):
        step.record["files"][recorded] = node_record.file_facts(recorded)


def load(wanted: Mapping[str, Any]) -> None:
    """Raises HintedError where a module does not load; one that DKMS makes is built once more."""
    name, hint = wanted["name"], wanted["hint"]
    result = node_command.run_merged(["modprobe", name], 60)
    if not result.ok and wanted["rebuild"]:
        built = rebuild(name, running())
        result = node_command.run_merged(["modprobe", name], 60)
        logs = f"`dkms status` and /var/lib/dkms/{name}/*/build/make.log"
        hint = hint or f"{logs} there say more; DKMS's last words: {built.strip()[-200:] or 'none'}"
    output = result.message
    if not result.ok and not has_module(name, running()):
        output = f"there is no such module for the running kernel {running()}"
        hint = hint or "`dkms status` on the node, or reboot the drained node into the kernel that has it"
    if not result.ok:
        raise node_errors.HintedError(f"modprobe {name}: {output}", hint or "`dmesg` on the node says more")
    if wanted["device"] and not os.path.exists(wanted["device"]):
        hint = f"is udev running there? `modprobe -r {name} && modprobe {name}` on the drained node"
        raise node_errors.HintedError(f"{name} is loaded, and there is no {wanted['device']}", hint)


def rebuild(name: str, release: str) -> str:
    """Have DKMS make a module for a kernel and what it is built against now; returns its output."""
    for words in node_packages.output(["dkms", "status", name]).splitlines():
        # `gdrdrv/2.6, 6.12.1, x86_64: installed`; older ones say `gdrdrv, 2.6, ...`
        version = words.replace("/", ",").split(",")[1].split(":")[0].strip()
        argv = ["dkms", "install", "--force", f"{name}/{version}", "-k", release]
        return node_command.run_merged(argv, BUILD_S).message
    return "DKMS does not know it"
