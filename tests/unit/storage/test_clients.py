"""Clients of Lustre, BeeGFS, CephFS and GlusterFS: what cluster.yml may say, and what a node gets for it."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest

from deepopsctl.cluster.spec import parse_spec
from deepopsctl.cluster.writer import render_spec
from deepopsctl.model.storage import Client, Mount, Needs, Platform, Repository, StorageType
from deepopsctl.storage import beegfs, cephfs, glusterfs, lustre
from deepopsctl.storage.compatibility import PAIRS, SINCE, unsupported, unsupported_version
from deepopsctl.storage.node_plan import plan_node
from deepopsctl.storage.registry import type_handlers
from deepopsctl.storage.secret_files import content_base64, why_unusable
from tests.support.cluster_yml import faults

HEAD = """\
schema: 1
nodes:
  - {names: ctl1, addresses: "192.0.2.1", roles: [controller]}
  - {names: "gpu[1-2]", addresses: "192.0.2.[11-12]", roles: [compute]}
  - {names: login1, addresses: "192.0.2.2", roles: [login]}
storage:
"""
KEY = "https://mirror.example.com/key.asc"
FINGERPRINT = "0123456789ABCDEF0123456789ABCDEF01234567"
MIRROR = f"repository: https://mirror.example.com/x/, key: {KEY}, fingerprint: {FINGERPRINT}"
LUSTRE = (
    "name: scratch, type: lustre, path: /scratch, options: [flock], source: 192.0.2.51@o2ib:192.0.2.52@o2ib:/fs, "
    f"lustre: {{version: 2.17.0, {MIRROR}, networks: {{o2ib0: [ib0, ib1], tcp: [eth0]}}, "
    "routes: {tcp9: [192.0.2.60@o2ib, 192.0.2.61@o2ib]}, module_options: {ko2iblnd: {peer_credits: 32}}}"
)
BEEGFS = (
    "name: work, type: beegfs, path: /work, source: 192.0.2.70, nodes: gpu1, "
    "beegfs: {version: 8.3, interfaces: [ib0, eth0], client: {tuneFileCacheType: native}}"
)
BEEGFS_2 = BEEGFS.replace("name: work", "name: more").replace("/work", "/more").replace("8.3", "8.3, client_port: 8014")
CEPHFS = (
    "name: home, type: cephfs, path: /home, source: '192.0.2.81,192.0.2.82:/volumes/home', "
    "cephfs: {user: hpc, fs: main}"
)
GLUSTERFS = "name: soft, type: glusterfs, path: /soft, source: '192.0.2.91,192.0.2.92:/gv0', options: [ro]"
UBUNTU = Platform("Ubuntu 24.04", "6.8.0-35-generic")
DEBIAN = Platform("Debian 13", "6.12.48+deb13-amd64")
DEBIAN_12 = Platform("Debian 12", "6.1.0-41-amd64")


def spec(*entries: str) -> str:
    return HEAD + "".join(f"  - {{{entry}}}\n" for entry in entries)


def mount(entry: str) -> Mount:
    return parse_spec(spec(entry), "cluster.yml").storage[0]


def needs(entry: str, platform: Platform) -> Needs:
    result = mount(entry)
    return type_handlers()[result.type].needs(result, platform)


def faults_of(*entries: str) -> list[str]:
    return [fault.partition(" ")[2].replace("storage[0].", "") for fault in faults(spec(*entries))]


def client(entry: str, platform: Platform = DEBIAN) -> Client:
    result = needs(entry, platform).client
    assert result is not None
    return result


def files(result: Needs) -> dict[str, str]:
    return {file.path: file.content.partition("\n")[2] for file in result.files}


@pytest.mark.parametrize("entry", [LUSTRE, BEEGFS, CEPHFS, GLUSTERFS])
def test_what_is_written_of_a_client_reads_back_as_the_same(entry: str) -> None:
    cluster = parse_spec(spec(entry), "cluster.yml")

    assert parse_spec(render_spec(cluster), "cluster.yml").storage == cluster.storage


def test_lnet_comes_by_options_of_its_module() -> None:
    result = needs(LUSTRE, UBUNTU)

    assert files(result) == {
        lustre.MODPROBE: 'options lnet networks="o2ib0(ib0,ib1),tcp0(eth0)" '
        'routes="tcp9 192.0.2.60@o2ib; tcp9 192.0.2.61@o2ib"\noptions ko2iblnd peer_credits=32\n'
    }
    assert result.requires == ()


def test_lnet_comes_by_its_service_and_then_by_no_option_of_its_module() -> None:
    result = needs(LUSTRE.replace("lustre: {", "lustre: {lnet: service, "), UBUNTU)

    assert files(result)[lustre.LNET_CONF] == (
        "net:\n  - net type: o2ib0\n    local NI(s):\n      - interfaces:\n          0: ib0\n      - interfaces:\n"
        "          0: ib1\n  - net type: tcp0\n    local NI(s):\n      - interfaces:\n          0: eth0\n"
        "route:\n  - net: tcp9\n    gateway: 192.0.2.60@o2ib\n  - net: tcp9\n    gateway: 192.0.2.61@o2ib\n"
    )
    assert files(result)[lustre.MODPROBE] == "options ko2iblnd peer_credits=32\n"
    assert result.requires == ("lnet.service",)


def test_lustre_is_built_by_dkms_or_comes_for_exactly_this_kernel() -> None:
    built = client(LUSTRE, UBUNTU)
    matched = client(LUSTRE.replace("lustre: {", "lustre: {modules: packages, "), UBUNTU)

    assert built.packages == ("lustre-client-modules-dkms", "lustre-client-utils")
    assert built.builds
    assert matched.packages == ("lustre-client-modules-6.8.0-35-generic", "lustre-client-utils")
    assert not matched.builds


# what is replaced in an entry, by what, and how the fault begins
WRONG = {
    LUSTRE: [
        ("192.0.2.51@o2ib:192.0.2.52@o2ib:/fs", "server:/fs", "source: 'server:/fs' is not a file system of Lustre"),
        ("192.0.2.51@o2ib:", "192.0.2.51@tcp7:", "source: the node has no way to 192.0.2.51@tcp7"),
        ("192.0.2.60@o2ib", "192.0.2.60@tcp4", "lustre.routes: 192.0.2.60@tcp4 is on no network of the node"),
        ("networks: {o2ib0: [ib0, ib1], tcp: [eth0]}, ", "", "lustre.routes: needs networks"),
        ("tcp: [eth0]", "eth: [eth0]", "lustre.networks: 'eth' is not a network"),
        ("[ib0, ib1]", '["ib0) x(y"]', "lustre.networks: 'ib0) x(y' is not an interface"),
        ("[ib0, ib1]", "[]", "lustre.networks: has a network with nothing behind it"),
        ("ko2iblnd: {peer_credits: 32}", "lnet: {networks: tcp0}", "lustre.module_options: networks is written by"),
        ("peer_credits: 32", '"a b": "1; x"', "lustre.module_options: 'a b' can't be written into its file"),
        ("version: 2.17.0, ", "", "lustre: names no version"),
        ("2.17.0", "2.14.0", "lustre.version: version 2.14.0 is in no series that we know (2.15, 2.16, 2.17)"),
        ("2.17.0", "2.15.1", "lustre.version: version 2.15.1 is older than 2.15.4"),
        (MIRROR, "modules: dkms", "lustre: its packages come from nowhere"),
        (f", fingerprint: {FINGERPRINT}", "", "lustre.repository: needs key and fingerprint"),
        (FINGERPRINT, "0123", "lustre.fingerprint: is not a valid fingerprint"),
        (MIRROR, "archives: {'https://x.example.com/a.deb': abc}", "lustre.archives: 'https://x.example.com/a.deb' is"),
        (
            MIRROR,
            "archives: {'https://x.example.com/a_1_amd64.deb': abc}",
            "lustre.archives: https://x.example.com/a_1",
        ),
        ("version: 2.17.0", "version: 2.17.0, modules: rpm", "lustre.modules: 'rpm' is not a way to them"),
        ("version: 2.17.0", "version: 2.17.0, lnet: both", "lustre.lnet: 'both' is not a way to set up LNet"),
        ("2.17.0", "new, untested: true", "lustre.version: 'new' is not a valid version"),
    ],
    BEEGFS: [
        ("source: 192.0.2.70", "source: 'a:/b'", "source: 'a:/b' is not a file system of BeeGFS"),
        ("source: 192.0.2.70", "source: 'a:99999'", "source: '99999' is not a valid number from 1 to 65535"),
        ("tuneFileCacheType: native", "connAuthFile: /x", "beegfs.client: connAuthFile is written by deepopsctl"),
        ("tuneFileCacheType: native", 'a: "x\\ny"', "beegfs.client: 'a' is not a key of the client"),
        ("tuneFileCacheType: native", 'logLevel: "3\\n connAuthFile=/x"', "beegfs.client: "),
        ("8.3", "8.3, build_arguments: [X=1]", "beegfs.build_arguments: is for the service that builds the module"),
        ("8.3", "7.4", "beegfs.version: BeeGFS has a repository for each release of 7"),
        ("[ib0, eth0]", '["ib0 x"]', "beegfs.interfaces: 'ib0 x' is not an interface"),
        ("interfaces", "interface", "beegfs.interface: unknown key"),
    ],
    CEPHFS: [
        ("'192.0.2.81,192.0.2.82:/volumes/home'", "'/volumes'", "source: '/volumes' is not a CephFS"),
        ("user: hpc, ", "", "cephfs: names no Ceph user"),
        ("user: hpc", "user: client.hpc", "cephfs.user: 'client.hpc' is not a name of a Ceph user"),
        ("fs: main", "driver: nfs", "cephfs.driver: 'nfs' is not known"),
        ("path: /home", "path: /home, options: [secret=abc]", "options[0]: secret is written by deepopsctl"),
    ],
    GLUSTERFS: [
        ("options: [ro]", "glusterfs: {log_level: loud}", "glusterfs.log_level: 'loud' is not a valid level"),
        (":/gv0", "", "source: '192.0.2.91,192.0.2.92' is not a volume of GlusterFS"),
    ],
}


@pytest.mark.parametrize(
    ("entry", "old", "new", "fault"), [(entry, *wrong) for entry, listed in WRONG.items() for wrong in listed]
)
def test_a_wrong_entry_is_refused_by_what_is_wrong(entry: str, old: str, new: str, fault: str) -> None:
    assert old in entry

    assert [result for result in faults_of(entry.replace(old, new, 1)) if result.startswith(fault)]


def test_two_file_systems_of_a_node_have_one_client_and_one_lnet() -> None:
    other = LUSTRE.replace("name: scratch", "name: more").replace("/scratch", "/more")

    assert parse_spec(spec(LUSTRE, other), "cluster.yml").storage
    assert faults_of(LUSTRE, other.replace("[eth0]", "[eth1]")) == [
        "storage[1].lustre.networks: is another than in scratch, and ctl1 mounts both"
    ]
    elsewhere = other.replace("[eth0]", "[eth1]").replace("path: /more", "path: /more, nodes: login1")
    assert parse_spec(spec(LUSTRE.replace("path: /scratch", "path: /scratch, nodes: gpu1"), elsewhere), "x").storage


def test_client_8_of_beegfs_has_one_port_for_each_server_and_its_secret_in_a_file() -> None:
    result = needs(BEEGFS, DEBIAN)

    assert files(result) == {
        "/etc/beegfs/beegfs-client-work.conf": (
            "sysMgmtdHost = 192.0.2.70\nconnMgmtdPort = 8008\nconnClientPort = 8004\n"
            "connAuthFile = /etc/beegfs/conn-work.auth\nconnDisableAuthentication = false\n"
            "connInterfacesFile = /etc/beegfs/interfaces-work\nconnRDMAInterfacesFile =\ntuneFileCacheType = native\n"
        ),
        # nothing but one a line: its first line is not a remark
        "/etc/beegfs/interfaces-work": "eth0\n",
    }
    assert "ib0\neth0\n" in [file.content for file in result.files]
    assert [(secret.path, secret.name, secret.mode) for secret in result.secrets] == [
        ("/etc/beegfs/conn-work.auth", "work", "0400")
    ]
    assert result.options == ("cfgFile=/etc/beegfs/beegfs-client-work.conf",)
    assert result.requires == ("modprobe@beegfs.service",)


def test_a_client_of_beegfs_counts_for_quotas_where_the_entry_has_some() -> None:
    def conf(text: str) -> str:
        return files(needs(text, DEBIAN))["/etc/beegfs/beegfs-client-work.conf"]

    counted = f"{BEEGFS}, quota: {{kind: user}}"

    assert "\nquotaEnabled = true\n" in conf(counted)
    assert "quotaEnabled" not in conf(BEEGFS)
    assert "\nquotaEnabled = false\n" in conf(counted.replace("tuneFileCacheType: native", "quotaEnabled: false"))


def test_client_7_of_beegfs_has_a_port_for_each_protocol_and_a_helper_with_the_secret() -> None:
    entry = BEEGFS.replace("8.3", "7.4.6")
    result = needs(entry, DEBIAN_12)

    conf = files(result)["/etc/beegfs/beegfs-client-work.conf"]
    assert "connMgmtdPortTCP = 8008\nconnMgmtdPortUDP = 8008\nconnClientPortUDP = 8004\n" in conf
    assert "connAuthFile = /etc/beegfs/conn-work.auth" in files(result)["/etc/beegfs/beegfs-helperd.conf"]
    assert result.requires == ("beegfs-helperd.service", "modprobe@beegfs.service")
    assert client(entry, DEBIAN_12).packages == ("beegfs-client-dkms", "beegfs-helperd", "beegfs-utils")
    assert result.problems == ()


def test_the_service_of_beegfs_builds_the_module_and_mounts_nothing() -> None:
    entry = BEEGFS.replace("8.3", "8.3, modules: service, build_arguments: [OFED_INCLUDE_PATH=/usr/src/ofa/include]")
    result = needs(entry, DEBIAN)

    assert files(result)["/etc/beegfs/beegfs-mounts.conf"] == ""
    assert (
        "buildArgs=-j OFED_INCLUDE_PATH=/usr/src/ofa/include\n"
        in files(result)["/etc/beegfs/beegfs-client-autobuild.conf"]
    )
    assert result.requires == ("beegfs-client.service",)
    assert client(entry).packages == ("beegfs-client", "beegfs-tools")


def test_beegfs_comes_from_its_own_repository_unless_a_mirror_is_named() -> None:
    def repository(release: str, platform: Platform = DEBIAN) -> Repository:
        result = client(BEEGFS.replace("8.3", release), platform).repository
        assert result is not None
        return result

    own, older = repository("8.3.1"), repository("7.4.6", DEBIAN_12)
    mirrored = repository(f"8.3, {MIRROR}")

    assert (own.url, own.suite) == ("https://www.beegfs.io/release/beegfs_8.3", "trixie")
    assert own.fingerprint == beegfs.FINGERPRINT
    assert (older.url, older.suite) == ("https://www.beegfs.io/release/beegfs_7.4.6", "bookworm")
    assert (mirrored.url, mirrored.components) == ("https://mirror.example.com/x", "non-free")
    assert (mirrored.key, mirrored.fingerprint) == (KEY, FINGERPRINT)


def test_two_file_systems_of_beegfs_on_a_node_need_two_ports() -> None:
    same = BEEGFS_2.replace(", client_port: 8014", "")

    assert faults_of(BEEGFS, same) == [
        "storage[1].beegfs.client_port: 8004 is already the port of work on the same node"
    ]
    assert parse_spec(spec(BEEGFS, BEEGFS_2), "x").storage
    assert parse_spec(spec(BEEGFS, same.replace("nodes: gpu1", "nodes: gpu2")), "x").storage


def test_the_helper_of_client_7_knows_one_secret() -> None:
    first = BEEGFS.replace("8.3", "7.4.6, secret: one")
    other = BEEGFS_2.replace("8.3", "7.4.6, secret: one")

    assert parse_spec(spec(first, other), "x").storage
    assert faults_of(first, other.replace("secret: one", "secret: two")) == [
        "storage[1].beegfs.secret: is another than in work, and gpu1 mounts both"
    ]


def test_the_secret_of_client_7_is_that_of_the_entrys_name_where_it_names_none() -> None:
    first, other = BEEGFS.replace("8.3", "7.4.6"), BEEGFS_2.replace("8.3", "7.4.6")

    assert parse_spec(spec(first, other.replace("7.4.6", "7.4.6, secret: work")), "x").storage
    assert faults_of(first, other) == ["storage[1].beegfs.secret: is another than in work, and gpu1 mounts both"]


def test_the_kernel_mounts_cephfs_with_the_key_in_a_file() -> None:
    result = needs(CEPHFS, DEBIAN)

    assert result.what == "192.0.2.81:6789,192.0.2.82:6789:/volumes/home"
    assert result.options == ("name=hpc", "secretfile=/etc/ceph/deepopsctl-home.secret", "fs=main")
    assert [(secret.name, secret.before) for secret in result.secrets] == [("home", "")]
    assert result.packages == {"ceph-common": ""}
    newer = needs(CEPHFS.replace("fs: main", "ms_mode: prefer-secure"), DEBIAN)
    assert newer.what == "192.0.2.81:3300,192.0.2.82:3300:/volumes/home"
    assert "ms_mode=prefer-secure" in newer.options


def test_ceph_fuse_finds_monitors_and_key_in_a_configuration_of_its_own() -> None:
    result = needs(CEPHFS.replace("fs: main", "fs: main, driver: fuse"), DEBIAN)

    assert (result.what, result.fstype) == ("none", "fuse.ceph")
    assert result.options == ("ceph.id=hpc", "ceph.conf=/etc/ceph/deepopsctl-home.conf")
    assert files(result)["/etc/ceph/deepopsctl-home.conf"] == (
        "[global]\nmon_host = v1:192.0.2.81:6789,v1:192.0.2.82:6789\n"
        "[client]\nkeyring = /etc/ceph/deepopsctl-home.keyring\nclient_mountpoint = /volumes/home\nclient_fs = main\n"
    )
    assert [secret.before for secret in result.secrets] == ["[client.hpc]\n\tkey = "]


def test_glusterfs_asks_the_other_servers_where_the_first_is_away() -> None:
    result = needs(GLUSTERFS, DEBIAN)

    assert (result.what, result.fstype) == ("192.0.2.91:/gv0", "glusterfs")
    assert result.options == ("backup-volfile-servers=192.0.2.92", "log-level=WARNING", "ro")


@pytest.mark.parametrize(
    ("entry", "platform", "why"),
    [
        (LUSTRE, DEBIAN, "lustre 2.17 has no client for Debian 13 (there is one for: Ubuntu 22.04, Ubuntu 24.04)"),
        (LUSTRE, replace(UBUNTU, kernel="6.80.0"), "lustre 2.17 has no client for the kernel 6.80.0"),
        (BEEGFS.replace("8.3", "7.4.6"), DEBIAN, "beegfs 7.4 has no client for Debian 13"),
        (CEPHFS, Platform("Rocky 9", "5.14.0"), "cephfs has no client for Rocky 9"),
        (GLUSTERFS, Platform("Rocky 9", "5.14.0"), "glusterfs has no client for Rocky 9"),
    ],
)
def test_a_client_that_does_not_fit_the_node_is_a_problem_before_anything_is_done(
    entry: str, platform: Platform, why: str
) -> None:
    assert [problem for problem in needs(entry, platform).problems if problem.startswith(why)]


def test_a_site_may_take_what_nobody_has_tested() -> None:
    assert needs(LUSTRE.replace("2.17.0", "2.18.0, untested: true"), DEBIAN).problems == ()


def test_every_series_of_the_table_has_rows_and_every_row_fits_itself() -> None:
    assert {(pair.type, pair.series) for pair in PAIRS if pair.series} == set(SINCE)
    for (kind, series), since in SINCE.items():
        version = ".".join(map(str, since))
        for pair in PAIRS:
            for kernel in pair.kernels if (pair.type, pair.series) == (kind, series) else ():
                assert unsupported_version(kind, version, Platform(pair.platform, f"{kernel}.0-1")) == ""
    assert all(pair.source.startswith(("https://", "lustre/ChangeLog")) for pair in PAIRS)
    assert unsupported(StorageType.NFS, "", DEBIAN) == ""


def test_a_node_gets_each_client_once_and_the_secrets_of_all_its_mounts() -> None:
    storage = parse_spec(spec(BEEGFS, BEEGFS_2, CEPHFS, LUSTRE), "x").storage

    plan = plan_node(storage, "gpu1", {}, replace(UBUNTU, kernel="6.8.0-31-generic"))

    assert [client.name for client in plan.clients] == ["beegfs", "lustre"]
    assert [secret.name for secret in plan.secrets] == ["work", "more", "home"]
    assert plan.checks == {"scratch": (("lfs", "check", "servers"), ("lfs", "df", "/scratch"))}
    assert plan.problems == ()
    assert plan_node(storage, "nobody", {}, UBUNTU).clients == ()


def test_the_files_of_secrets_have_them_as_their_readers_want_them() -> None:
    key = "AQBTEST0000000000000000000000000000000test=="
    ring = needs(CEPHFS.replace("fs: main", "driver: fuse"), DEBIAN).secrets[0]
    word = needs(CEPHFS, DEBIAN).secrets[0]
    binary = needs(BEEGFS, DEBIAN).secrets[0]
    vault = {"home": key, "work": base64.b64encode(bytes(range(128))).decode()}

    assert base64.b64decode(content_base64(ring, vault)) == f"[client.hpc]\n\tkey = {key}\n".encode()
    assert base64.b64decode(content_base64(word, vault)) == f"{key}\n".encode()
    assert base64.b64decode(content_base64(binary, vault)) == bytes(range(128))
    assert why_unusable((ring, word, binary), vault) == []


def test_a_secret_that_is_missing_or_of_another_form_is_named_and_never_shown() -> None:
    result = [needs(entry, DEBIAN).secrets[0] for entry in (CEPHFS, BEEGFS)]

    assert [sentence.partition(":")[0] for sentence in why_unusable(result, {})] == [
        "the vault has no secret home", "the vault has no secret work",
    ]  # fmt: skip
    wrong = why_unusable(result, {"home": "hunter2", "work": "hunter2"})
    assert [sentence.partition(" (")[0].partition(" as ")[0] for sentence in wrong] == [
        "the secret home is not a key", "the secret work is not the file in base64",
    ]  # fmt: skip
    assert "hunter2" not in "".join(wrong)


def test_no_word_of_an_entry_reaches_a_shell_or_another_line() -> None:
    for module, entry in ((cephfs, CEPHFS), (glusterfs, GLUSTERFS)):
        assert module.split_source(mount(entry).source + ";id") in (((), ""),)
        assert module.split_source(mount(entry).source + "\n") in (((), ""),)
