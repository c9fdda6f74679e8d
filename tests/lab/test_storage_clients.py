"""Clients of network file systems on real nodes.

GlusterFS is real: Debian's server on the controller, mounted by our units over FUSE. CephFS has Debian's real packages
and no cluster to mount. Lustre and BeeGFS can't be had here: packages of the same names that this test makes and signs
stand in for them, with a module that is an empty file and a mount program that reads what it should and mounts memory.
"""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import pytest

from tests.lab.aptrepo import Stub, build, build_suite, serve, signers
from tests.lab.harness import PREFIX, LabCluster, fresh_cluster

pytestmark = pytest.mark.without_slurm

SERVER, NODE, OTHER = "ctl1", "cn01", "cn02"
RELEASE = subprocess.run(["uname", "-r"], capture_output=True, text=True, check=True).stdout.strip()
SECRET = bytes(range(200, 256)) * 2
VAULT = {
    "work": base64.b64encode(SECRET).decode(),
    "home": base64.b64encode(b"of no Ceph cluster anywhere").decode() + "standin",
}
# nothing listens there
NOWHERE = "http://127.0.0.1:9"
OLDER, NEWER = "2.15.8", "2.17.0"
# all that a deploy of storage could leave behind but its sources of packages, which come before a kernel is refused
WRITTEN = (
    "dpkg-query --show; apt-mark showhold; find /etc /var/cache/deepopsctl -not -type d 2>/dev/null | "
    "grep -E 'deepopsctl|[.]mount$|/etc/beegfs|lnet.conf' | grep -v -e keyrings/ -e sources.list.d/ | sort"
)
LNET = "[Unit]\nConditionPathExists=/etc/lnet.conf\n[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n"
# what both hand to the kernel as flags of the mount
FLAGS = """\
flags=rw$(echo "$4" | tr , '\\n' | grep -xE 'ro|noatime|nosuid|nodev|noexec' | sed 's/^/,/' | tr -d '\\n')
exec mount -t tmpfs -o "$flags" "$1" "$2"
"""
# as mount.lustre and mount.beegfs are called by mount(8), and as little as they must find
# options that Lustre's does not know it hands to the kernel, which then mounts nothing
MOUNT_LUSTRE = f"""\
#!/bin/sh
systemctl --quiet is-active lnet.service || exit 32
for option in $(echo "$4" | tr , ' '); do
    case $option in
        rw | ro | _netdev | defaults | auto | noauto | noatime | nosuid | nodev | noexec | flock) ;;
        *) echo "Unknown option '$option', won't mount." >&2; exit 22 ;;
    esac
done
{FLAGS}"""
LFS = '#!/bin/sh\n[ "$1" = check ] || exit 0\necho "scratch-OST0001: inactive"\nexit 1\n'
MOUNT_BEEGFS = f"""\
#!/bin/sh
conf=$(echo "$4" | tr , '\\n' | sed -n 's/^cfgFile=//p')
test -s "$(sed -n 's/^connAuthFile = //p' "$conf")" || exit 32
{FLAGS}"""


def lustre(version: str) -> list[Stub]:
    """Lustre's packages of one release."""
    modules = {f"usr/lib/modules/{RELEASE}/updates/dkms/{name}.ko": "\n" for name in ("lnet", "lustre")}
    utils = {"usr/lib/systemd/system/lnet.service": LNET, "usr/sbin/mount.lustre": MOUNT_LUSTRE, "usr/bin/lfs": LFS}
    return [
        Stub("lustre-client-modules-dkms", f"{version}-1", files=modules),
        Stub("lustre-client-modules-1.2.3-other", f"{version}-1"),
        Stub("lustre-client-utils", f"{version}-1", files=utils),
    ]


def beegfs() -> list[Stub]:
    """BeeGFS's packages, with the epoch that theirs have."""
    modules = {f"usr/lib/modules/{RELEASE}/updates/dkms/beegfs.ko": "\n"}
    mount = {"usr/sbin/mount.beegfs": MOUNT_BEEGFS}
    return [
        Stub("beegfs-client-dkms", "20:8.3.1", files={**modules, **mount}),
        Stub("beegfs-tools", "20:8.3.1"),
    ]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """A controller that serves a volume of GlusterFS, and two nodes; nothing deployed."""
    with fresh_cluster(f"{PREFIX}-stclients", tmp_path_factory, "--compute", "2") as made:
        if not made.holds(NODE, "test -e /dev/fuse"):
            pytest.skip("this machine has no FUSE")
        made.root(
            SERVER,
            "export DEBIAN_FRONTEND=noninteractive; exec 2>&1; apt-get -qq update && "
            "apt-get -qq install --no-install-recommends glusterfs-server >/tmp/log && "
            "systemctl start glusterd && mkdir /srv/brick && "
            "gluster --mode=script volume create gv0 $(hostname -I | cut -d' ' -f1):/srv/brick force && "
            "gluster --mode=script volume start gv0",
        )
        for node in (NODE, OTHER):
            # as if the running kernel's headers were there: a lab's kernel is its host's
            made.root(node, f"mkdir -p /usr/lib/modules/{RELEASE}/build")
        yield made


@pytest.fixture(scope="module")
def entries(cluster: LabCluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What cluster.yml has, by name; the repositories are served by the controller."""
    root = tmp_path_factory.mktemp("mirror") / "mirror"
    with signers(1) as (signer,):
        build(root / "lustre", "Lustre", [*lustre(OLDER), *lustre(NEWER)], signer)
        build_suite(root / "beegfs", "trixie", "non-free", beegfs(), signer)
        (root / "key.asc").write_bytes(signer.public)
        url, fingerprint = serve(cluster, SERVER, root), signer.fingerprint
    made = [path for path in (root / "lustre").iterdir() if path.name.endswith(".deb") and f"_{NEWER}-1_" in path.name]
    vouched = {"key": f"{url}/key.asc", "fingerprint": fingerprint}
    host = url.split("/")[2].split(":")[0]
    client = {"version": OLDER, "repository": f"{url}/lustre", **vouched}
    lnet = {"lnet": "service", "networks": {"tcp0": ["eth0"]}, "module_options": {"ksocklnd": {"credits": "64"}}}
    return {
        "soft": {"type": "glusterfs", "source": f"127.0.0.1,{host}:/gv0", "nodes": "compute"},
        "scratch": {
            "type": "lustre", "source": f"{host}@tcp:/fs", "nodes": NODE,
            "lustre": {**client, **lnet, "untested": True},
        },
        "newer": {
            "type": "lustre", "source": f"{host}@tcp:/fs", "nodes": NODE,
            "lustre": {
                "version": NEWER, **lnet, "untested": True,
                "archives": {f"{url}/lustre/{path.name}": sha256(path.read_bytes()).hexdigest() for path in made},
            },
        },
        "work": {
            "type": "beegfs", "source": host, "nodes": NODE,
            "beegfs": {"version": "8.3", "repository": f"{url}/beegfs", **vouched, "untested": True},
        },
        # not over /home: the home of a login that may become root has to be on the node's own disk
        "home": {
            "path": "/people", "type": "cephfs", "source": "127.0.0.1:/", "nodes": NODE, "options": ["mount_timeout=1"],
            "cephfs": {"user": "hpc"},
        },
    }  # fmt: skip


def first(entries: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What is declared to begin with."""
    return {name: entry for name, entry in entries.items() if name not in ("newer", "home")}


def declare(cluster: LabCluster, entries: dict[str, dict[str, Any]], **secrets: str) -> None:
    """Write the storage of cluster.yml, and the secrets."""
    path = cluster.directory / "cluster.yml"
    text = path.read_text(encoding="utf-8").partition("storage: ")[0]
    listed = [{"name": name, "path": f"/{name}", **entry} for name, entry in entries.items()]
    path.write_text(f"{text}storage: {json.dumps(listed)}\n", encoding="utf-8")
    vault = cluster.directory / "inventory" / "group_vars" / "all" / "storage_secrets.yml"
    vault.write_text(f"storage_secrets: {json.dumps(secrets)}\n", encoding="utf-8")


def deploy(cluster: LabCluster, ok: bool = True) -> dict[str, Any]:
    return cluster.parsed("deploy", "storage", ok=ok)


def refusal(cluster: LabCluster, entry: dict[str, Any], others: dict[str, dict[str, Any]], **changes: object) -> str:
    """deploy's error about Lustre with other settings, on a node that stays as it was."""
    before = cluster.root(NODE, WRITTEN)
    declare(cluster, {"scratch": {**entry, "lustre": {**entry["lustre"], **changes}}, **others})
    (failure,) = deploy(cluster, ok=False)["failures"]
    assert failure["host"] == NODE
    assert cluster.root(NODE, WRITTEN) == before
    return f"{failure['message']} {failure['hint']}"


def test_what_does_not_fit_and_a_missing_secret_are_refused_together_before_anything_is_touched(
    cluster: LabCluster, entries: dict[str, dict[str, Any]]
) -> None:
    message = refusal(cluster, entries["scratch"], {"work": entries["work"]}, untested=False)

    assert "storage scratch: lustre 2.15 has no client for Debian 13 (there is one for: Ubuntu 22.04" in message
    assert "the vault has no secret work" in message


def test_a_kernel_that_there_are_no_modules_for_is_refused_with_those_that_there_are(
    cluster: LabCluster, entries: dict[str, dict[str, Any]]
) -> None:
    message = refusal(cluster, entries["scratch"], {}, modules="packages")

    assert f"there is no lustre-client-modules-{RELEASE} for the running kernel" in message
    assert "it was made for 1.2.3-other" in message


def with_client(entry: dict[str, Any], **changes: object) -> dict[str, Any]:
    """An entry of Lustre with other settings of the client."""
    return {**entry, "lustre": {**entry["lustre"], **changes}}


def test_a_client_that_cannot_be_fetched_costs_its_own_mounts_alone(
    cluster: LabCluster, entries: dict[str, dict[str, Any]]
) -> None:
    scratch = with_client(entries["scratch"], repository=NOWHERE, key=f"{NOWHERE}/key.asc")
    declare(cluster, {**first(entries), "scratch": scratch}, **VAULT)
    # doctor asks at no address that a node has a source of
    cluster.root(NODE, "rm -f /etc/apt/sources.list.d/deepopsctl-storage-lustre.sources /etc/apt/keyrings/deepopsctl-*")

    checks = cluster.parsed("doctor", ok=False)["checks"]
    repositories = {check["target"]: check for check in checks if check["name"] == "repositories"}
    assert "lustre with scratch will be left out" in repositories[NODE]["message"]
    assert repositories[OTHER]["status"] == "pass"

    document = deploy(cluster, ok=False)

    (failure,) = document["failures"]
    assert failure["host"] == NODE
    assert f"lustre {OLDER} is left out: cannot fetch {NOWHERE}/key.asc" in failure["message"]
    assert f"{NODE}: storage scratch can't be mounted: its client is left out" in document["warnings"]
    assert cluster.holds(NODE, "mountpoint -q /soft && mountpoint -q /work")
    assert not cluster.holds(NODE, "mountpoint -q /scratch")
    assert cluster.holds(OTHER, "mountpoint -q /soft")


def test_a_node_without_the_client_of_required_storage_fails(
    cluster: LabCluster, entries: dict[str, dict[str, Any]]
) -> None:
    scratch = with_client(entries["scratch"], repository=NOWHERE, key=f"{NOWHERE}/key.asc")
    declare(cluster, {**first(entries), "scratch": {**scratch, "required": True}}, **VAULT)

    document = deploy(cluster, ok=False)

    assert {host: totals["failed"] for host, totals in document["hosts"].items() if totals["failed"]} == {NODE: 1}
    assert "storage scratch can't be mounted: its client is left out" in [
        failure["message"] for failure in document["failures"]
    ]


def test_everything_is_mounted_and_what_one_node_writes_another_reads(
    cluster: LabCluster, entries: dict[str, dict[str, Any]]
) -> None:
    declare(cluster, first(entries), **VAULT)

    document = deploy(cluster)

    assert document["ok"]
    assert any("`lfs check servers` fails: scratch-OST0001: inactive" in warning for warning in document["warnings"])
    cluster.root(NODE, "echo from one node > /soft/file")
    assert cluster.root(OTHER, "cat /soft/file; findmnt --noheadings --output FSTYPE /soft").split("\n") == [
        "from one node", "fuse.glusterfs",
    ]  # fmt: skip
    assert cluster.root(NODE, "findmnt --noheadings --output SOURCE /work") == "beegfs_nodev"
    assert cluster.root(NODE, "findmnt --noheadings --output SOURCE /scratch").endswith("@tcp:/fs")


def test_configuration_and_secret_are_as_the_client_wants_them(cluster: LabCluster) -> None:
    assert cluster.root(NODE, "stat -c '%a %U' /etc/beegfs/conn-work.auth") == "400 root"
    assert base64.b64decode(cluster.root(NODE, "base64 -w0 /etc/beegfs/conn-work.auth")) == SECRET
    assert "connAuthFile = /etc/beegfs/conn-work.auth" in cluster.root(NODE, "cat /etc/beegfs/beegfs-client-work.conf")
    assert "net type: tcp0" in cluster.root(NODE, "cat /etc/lnet.conf")
    assert "options ksocklnd credits=64" in cluster.root(NODE, "cat /etc/modprobe.d/deepopsctl-lustre.conf")
    assert "After=" in cluster.root(NODE, "grep lnet.service /etc/systemd/system/scratch.mount")


def test_client_and_kernel_are_held_together_and_come_in_the_wanted_release(cluster: LabCluster) -> None:
    held = cluster.root(NODE, "apt-mark showhold").split()

    assert {"lustre-client-modules-dkms", "lustre-client-utils", "beegfs-client-dkms", "beegfs-tools"} <= set(held)
    assert cluster.root(NODE, "dpkg-query -W -f '${Version}' lustre-client-utils") == f"{OLDER}-1"
    assert cluster.root(OTHER, "apt-mark showhold; ls /etc/apt/sources.list.d") == cluster.root(
        OTHER, "ls /etc/apt/sources.list.d"
    )


def test_no_secret_is_in_a_log_or_a_report(cluster: LabCluster) -> None:
    words = "|".join(VAULT.values()).replace("+", ".").replace("/", ".")

    assert cluster.root(NODE, f"journalctl --no-pager | grep -Ec '{words}' || true") == "0"
    for path in (cluster.directory / "runs").rglob("*"):
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        assert not any(secret in text for secret in VAULT.values()), path


def test_a_second_run_holds_again_what_was_let_go_and_changes_nothing_else(
    cluster: LabCluster, entries: dict[str, dict[str, Any]]
) -> None:
    # the only one here that may run without those above
    declare(cluster, first(entries), **VAULT)
    deploy(cluster)
    cluster.root(NODE, "apt-mark unhold beegfs-client-dkms")

    again = deploy(cluster)

    assert [(entry["host"], entry["name"], entry["action"]) for entry in again["changes"]] == [
        (NODE, "beegfs-client-dkms", "hold")
    ]
    assert {host["changed"] for name, host in again["hosts"].items() if name != NODE} == {0}


def test_a_release_that_cannot_be_fetched_leaves_the_installed_one(
    cluster: LabCluster, entries: dict[str, dict[str, Any]]
) -> None:
    archives = {f"{NOWHERE}/lustre-client-utils_{NEWER}-1_amd64.deb": "0" * 64}
    declare(cluster, {**first(entries), "scratch": with_client(entries["newer"], archives=archives)}, **VAULT)

    (failure,) = deploy(cluster, ok=False)["failures"]

    assert f"lustre {NEWER} is left out: cannot fetch {NOWHERE}/lustre-client-utils" in failure["message"]
    assert cluster.holds(NODE, "mountpoint -q /scratch")
    assert cluster.root(NODE, "dpkg-query -W -f '${Version}' lustre-client-utils") == f"{OLDER}-1"
    assert "lustre-client-utils" in cluster.root(NODE, "apt-mark showhold").split()


def test_another_release_comes_although_the_packages_are_held(
    cluster: LabCluster, entries: dict[str, dict[str, Any]]
) -> None:
    # this one by single packages, each with its hash; and with a file system that no server has
    declare(cluster, {**first(entries), "scratch": entries["newer"], "home": entries["home"]}, **VAULT)

    document = deploy(cluster)

    assert document["ok"]
    assert cluster.root(NODE, "dpkg-query -W -f '${Version}' lustre-client-utils") == f"{NEWER}-1"
    assert "lustre-client-utils" in cluster.root(NODE, "apt-mark showhold").split()
    assert any("storage home can't be mounted" in warning for warning in document["warnings"])


def test_cephfs_has_its_packages_and_its_key_and_fails_alone_without_a_cluster(cluster: LabCluster) -> None:
    assert cluster.root(NODE, "stat -c '%a %U' /etc/ceph/deepopsctl-home.secret") == "400 root"
    assert cluster.root(NODE, "cat /etc/ceph/deepopsctl-home.secret") == VAULT["home"]
    unit = cluster.root(NODE, "cat /etc/systemd/system/people.mount")
    assert "What=127.0.0.1:6789:/\n" in unit
    assert "Options=name=hpc,secretfile=/etc/ceph/deepopsctl-home.secret,mount_timeout=1" in unit
    assert cluster.holds(NODE, "test -x /sbin/mount.ceph && mountpoint -q /soft && mountpoint -q /scratch")


def test_what_nothing_needs_any_more_goes_with_its_holds_and_its_secrets(cluster: LabCluster) -> None:
    declare(cluster, {})

    assert deploy(cluster)["ok"]

    assert cluster.root(NODE, "apt-mark showhold") == ""
    left = cluster.root(NODE, WRITTEN)
    assert not any(
        word in left for word in ("lustre-client", "beegfs", "glusterfs-client", "ceph-common", "/people.mount")
    )
    assert not cluster.holds(NODE, "ls /etc/ceph/deepopsctl-home.secret /etc/beegfs/conn-work.auth /etc/lnet.conf")
    assert not cluster.holds(NODE, "mountpoint -q /soft")
    assert "deepopsctl-storage" not in cluster.root(NODE, "ls /etc/apt/sources.list.d /etc/apt/keyrings")
