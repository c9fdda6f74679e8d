"""Stage client_modules: a file system's client whose kernel module is compiled on the node, loaded and mounted.

BeeGFS can't be had here. Packages of its names stand in for it, with the source of a module that registers a file
system of that name and stores nothing in it. DKMS, the headers, the compiler, the kernel and systemd are real.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest

from tests.lab.aptrepo import Stub, build, signers
from tests.vm.stages.vmcluster import CONTROLLER, NODE, VmCluster

VERSION = "8.3.1"
# where the packages lie on the node
DIRECTORY = "/var/tmp"
SOURCE = """\
#include <linux/fs.h>
#include <linux/module.h>

static int fill(struct super_block *sb, void *data, int silent)
{
	static const struct tree_descr nothing[] = { { "" } };

	return simple_fill_super(sb, 0x19830326, nothing);
}

static struct dentry *mounted(struct file_system_type *type, int flags, const char *source, void *data)
{
	return mount_nodev(type, flags, data, fill);
}

static struct file_system_type beegfs = {
	.owner = THIS_MODULE, .name = "beegfs", .mount = mounted, .kill_sb = kill_litter_super,
};

static int __init begin(void) { return register_filesystem(&beegfs); }
static void __exit end(void) { unregister_filesystem(&beegfs); }

module_init(begin);
module_exit(end);
MODULE_LICENSE("GPL");
MODULE_VERSION("8.3.1");
MODULE_DESCRIPTION("stands in for BeeGFS in a test");
"""
DKMS = f"""\
PACKAGE_NAME="beegfs"
PACKAGE_VERSION="{VERSION}"
BUILT_MODULE_NAME[0]="beegfs"
DEST_MODULE_LOCATION[0]="/updates/dkms"
MAKE[0]="make -C ${{kernel_source_dir}} M=${{dkms_tree}}/beegfs/{VERSION}/build"
AUTOINSTALL="yes"
"""
# as BeeGFS's own ends
MOUNT = '#!/bin/sh\nexec mount --internal -t beegfs --source "$1" --target "$2" -o "$4"\n'
CLIENT = Stub(
    "beegfs-client-dkms",
    VERSION,
    depends="dkms, gcc, make, libc6-dev",
    files={
        f"usr/src/beegfs-{VERSION}/beegfs.c": SOURCE,
        f"usr/src/beegfs-{VERSION}/Makefile": "obj-m := beegfs.o\n",
        f"usr/src/beegfs-{VERSION}/dkms.conf": DKMS,
        "usr/sbin/mount.beegfs": MOUNT,
    },
    postinst=f"#!/bin/sh\nset -e\ndkms add -m beegfs -v {VERSION}\ndkms install -m beegfs -v {VERSION}\n",
    prerm=f"#!/bin/sh\ndkms remove -m beegfs -v {VERSION} --all\n",
)
# an initramfs for each package would cost an emulated machine minutes
PREPARE = "sed -i s/^update_initramfs=.*/update_initramfs=no/ /etc/initramfs-tools/update-initramfs.conf"


@pytest.fixture(scope="module")
def deployed(cluster: VmCluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The summary of the deploy that installs it."""
    made = tmp_path_factory.mktemp("packages")
    with signers(1) as (signer,):
        build(made, "BeeGFS", [CLIENT, Stub("beegfs-tools", VERSION)], signer)
    files = sorted(made.glob("*.deb"))
    cluster.copy(NODE, files, DIRECTORY)
    cluster.root(NODE, PREPARE)
    beegfs = {
        "version": VERSION,
        "authentication": False,
        "archives": {f"file://{DIRECTORY}/{file.name}": sha256(file.read_bytes()).hexdigest() for file in files},
    }
    entry = {"name": "work", "type": "beegfs", "path": "/work", "nodes": NODE, "required": True, "beegfs": beegfs}
    entry["source"] = cluster.addresses[CONTROLLER]
    path = cluster.directory / "cluster.yml"
    path.write_text(path.read_text(encoding="utf-8") + f"\nstorage: {json.dumps([entry])}\n", encoding="utf-8")
    return cluster.parsed("deploy", "storage")


@pytest.mark.usefixtures("deployed")
def test_the_module_is_compiled_for_the_kernel_that_runs_and_mounted(cluster: VmCluster) -> None:
    kernel = cluster.root(NODE, "uname -r")

    assert f"/lib/modules/{kernel}/updates/dkms/beegfs.ko" in cluster.root(NODE, "modinfo --field filename beegfs")
    assert cluster.root(NODE, "findmnt --noheadings --output FSTYPE,SOURCE /work").split() == ["beegfs", "beegfs_nodev"]
    assert cluster.root(NODE, "cat /sys/module/beegfs/version") == VERSION
    held = cluster.root(NODE, "apt-mark showhold").split()
    assert {"beegfs-client-dkms", "beegfs-tools", f"linux-image-{kernel}", f"linux-headers-{kernel}"} <= set(held)


@pytest.mark.usefixtures("deployed")
def test_the_next_deploy_changes_nothing(cluster: VmCluster) -> None:
    assert set(cluster.changed(cluster.parsed("deploy", "storage")).values()) == {0}


@pytest.mark.usefixtures("deployed")
def test_all_of_it_goes_with_its_entry(cluster: VmCluster) -> None:
    path = cluster.directory / "cluster.yml"
    text = path.read_text(encoding="utf-8").partition("\nstorage: ")[0]
    path.write_text(f"{text}\nstorage: []\n", encoding="utf-8")

    cluster.parsed("deploy", "storage")

    assert not cluster.holds(NODE, "findmnt /work")
    left = cluster.root(NODE, "apt-mark showhold; dkms status; ls /etc/beegfs 2>/dev/null || true")
    assert "beegfs" not in left
    assert "linux" not in left
