"""The running kernel of a node: its modules, its headers, and the packages that would install another one."""

from __future__ import annotations

import os
import re

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    errors as node_errors,
    packages_apt as node_packages,
)

MODULES = "/lib/modules"
# packages by which upgrades install kernels: the images and headers, and the packages that always depend on the newest
_KERNEL = re.compile(r"linux-(image|headers|modules)-.+|linux-(generic|virtual|image|headers)(-.+)?")
# rebuilt for every kernel, and no kernel themselves
_NO_KERNEL = re.compile(r"linux-(image|headers)-.*-(dbg|dbgsym)|linux-headers-.*-common.*")


class KernelError(node_errors.HintedError):
    """The running kernel does not go together with what is wanted."""


def running():
    """The release, as modules are made for it."""
    return os.uname().release


def has_module(name, release, root=MODULES):
    """Whether a module's file is there for a kernel; whether that can load it is seen when it does."""
    file = re.compile(r"%s\.ko(\.(gz|xz|zst))?" % re.sub("[-_]", "[-_]", name))
    return any(
        file.fullmatch(entry)
        for _directory, _subdirectories, files in os.walk(os.path.join(root, release))
        for entry in files
    )


def has_headers(release, root=MODULES):
    """Whether a module can be compiled for a kernel."""
    return os.path.isdir(os.path.join(root, release, "build"))


def headers_package(release):
    """The package that has the headers of a kernel."""
    return "linux-headers-%s" % release


def packages_in(names):
    """Those of the packages that are a kernel, or install a newer one."""
    return sorted(name for name in names if _KERNEL.fullmatch(name) and not _NO_KERNEL.fullmatch(name))


def installed():
    """The same of this node."""
    return packages_in(node_packages.installed(["linux-*"]))


def check_headers(what, release):
    """Raises KernelError where a module can be compiled neither now nor with a package that apt knows."""
    name = headers_package(release)
    if has_headers(release) or node_packages.candidates([name]) or node_packages.installed([name]):
        return
    others = [other for other in node_packages.known("linux-headers-") if re.search(r"-\d", other)]
    raise KernelError(
        "%s: its module can't be compiled, there is no %s for the running kernel" % (what, name),
        "reboot the drained node into a kernel that the package sources have headers of (%s), then deploy again"
        % (" ".join(others[-4:]) or "none: run `apt-get update` on the node, and check its sources"),
    )


def check_module(what, name, release):
    """Raises KernelError where a module is not there for the running kernel."""
    if has_module(name, release):
        return
    built = node_packages.output(["dkms", "status"]).strip() if os.path.exists("/usr/sbin/dkms") else ""
    raise KernelError(
        "%s: there is no module %s for the running kernel %s%s" % (what, name, release, built and " (%s)" % built),
        "`dkms autoinstall` on the node shows why, or reboot the drained node into the kernel that it was made for",
    )
