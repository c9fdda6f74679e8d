"""Users of a real LDAP server on real nodes, also while the server is away. The cluster is left as it was."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.cluster import secrets
from deepopsctl.environment.reserved_names import is_reserved
from tests.lab import slapd
from tests.lab.harness import PATIENCE_S, LabCluster, edit, wait_until

NODES = ("ctl1", "gpu01", "gpu02")
COMPONENT = "environment"
PEOPLE = f"""\
schema: 1
directory:
  servers: [ldap://ctl1]
  base: {slapd.BASE}
  ca: directory-ca.pem
  bind_dn: {slapd.READER}
  access_filter: (employeeType=hpc)
  ssh_keys: true
  accounts:
    - {{group: curie-lab, account: def-curie}}
people: []
"""
SPACES = """
storage:
  - {name: scratch, type: local, source: /srv/scratch, path: /scratch}
  - {name: project, type: local, source: /srv/project, path: /project}
spaces: {scratch: {storage: scratch}, project: {storage: project}}
"""


@dataclass(frozen=True)
class Site:
    """The cluster with its directory, and the key of everybody there."""

    cluster: LabCluster
    key: Path
    address: str

    @property
    def people(self) -> Path:
        return self.cluster.directory / "people.yml"

    def run(self, *words: str, ok: bool = True) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.cluster.deepopsctl(*words, "--json", ok=ok).stdout)
        return document

    def deploy(self, ok: bool = True) -> dict[str, Any]:
        return self.run("deploy", COMPONENT, ok=ok)

    def failed_checks(self) -> list[str]:
        """The checks of `validate environment` that fail, with their targets."""
        checks = self.run("validate", COMPONENT, ok=False)["checks"]
        return [f"{check['name']} {check['target']}" for check in checks if check["status"] == "fail"]

    def ssh(self, name: str, script: str) -> tuple[int, str]:
        """The exit code and output of a command that a user runs on the controller over SSH."""
        options = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "BatchMode=yes")
        words = [word for option in options for word in ("-o", option)]
        argv = ["ssh", "-i", str(self.key), *words, f"{name}@{self.address}", script]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S)
        return done.returncode, (done.stdout + done.stderr).strip()

    def limits(self, name: str) -> set[str]:
        """MaxSubmitJobs of all associations of a user; '' is none."""
        argv = f"sacctmgr -nP show assoc user={name} format=maxsubmitjobs wopl"
        return set(self.cluster.root("ctl1", argv).splitlines() or [""])

    def know(self, node: str, name: str) -> bool:
        return self.cluster.holds(node, f"getent passwd {name}")


@pytest.fixture(scope="module")
def site(deployed: LabCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Three users and some groups in LDAP, one of these with an account; deployed."""
    key = tmp_path_factory.mktemp("directory") / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", str(key)], check=True)
    public = key.with_suffix(".pub").read_text(encoding="utf-8").strip()
    site = Site(deployed, key, deployed.root("ctl1", "hostname -I").split()[0])
    spec = deployed.directory / "cluster.yml"
    before = spec.read_text(encoding="utf-8")
    vault = deployed.directory / "inventory" / "group_vars" / "all" / "secrets.yml"
    password_file = deployed.directory / ".vault-password"
    entries = [
        slapd.user("grace", 20010, public), slapd.user("lise", 20011, public),
        slapd.user("guest", 20012, public, "other"), slapd.group("ldapusers", 20000),
        slapd.group("curie-lab", 20001, ["grace", "lise"]), slapd.group("sudo", 20027, ["grace"]),
    ]  # fmt: skip
    try:
        slapd.install(deployed, "ctl1", "".join(entries))
        (deployed.directory / "directory-ca.pem").write_text(deployed.root("ctl1", f"cat {slapd.AUTHORITY}") + "\n")
        secrets.change(vault, password_file, {"directory_bind_password": slapd.PASSWORD})
        site.people.write_text(PEOPLE)
        for node in NODES:
            deployed.root(node, "mkdir -p /srv/scratch /srv/project")
        edit(spec, "components: [slurm]", "components: [slurm, storage, environment]")
        spec.write_text(spec.read_text(encoding="utf-8") + SPACES, encoding="utf-8")
        site.run("deploy", "storage")
        site.deploy()
        yield site
    finally:
        spec.write_text(f"{before}storage: []\n", encoding="utf-8")
        deployed.deepopsctl("deploy", "storage")
        spec.write_text(before, encoding="utf-8")
        site.people.unlink(missing_ok=True)
        secrets.change(vault, password_file, {"directory_bind_password": None})
        deployed.root("ctl1", "scancel --user=grace; sacctmgr -i delete user grace,lise,ada", ok=False)
        deployed.root("ctl1", "sacctmgr -i delete account def-curie_cpu,def-curie_gpu,def-curie", ok=False)
        deployed.root(
            "ctl1", "DEBIAN_FRONTEND=noninteractive apt-get purge -y -qq slapd; rm -rf /var/lib/ldap-test", ok=False
        )
        for node in NODES:
            deployed.root(
                node, "DEBIAN_FRONTEND=noninteractive apt-get purge -y -qq 'sssd-*' libnss-sss libpam-sss", ok=False
            )
            deployed.root(
                node,
                "rm -rf /etc/sssd /var/lib/sss /home/grace /home/lise /etc/ssh/deepopsctl/keys /srv/scratch",
                ok=False,
            )
            deployed.root(
                node,
                "rm -rf /srv/project /etc/ssh/sshd_config.d/4[01]-deepopsctl-*.conf; systemctl reload ssh",
                ok=False,
            )
            deployed.root(node, "cd /var/lib/deepopsctl && rm -f */environment.people.json */environment.sssd.json")
        deployed.deploy()


def test_everything_that_is_validated_is_so_on_every_node(site: Site) -> None:
    assert site.failed_checks() == []
    assert {site.cluster.root(node, "id grace") for node in NODES} == {
        "uid=20010(grace) gid=20000(ldapusers) groups=20000(ldapusers),20001(curie-lab)"
    }


def test_the_key_of_the_directory_opens_the_login_and_a_job_runs_as_the_user(site: Site) -> None:
    assert site.ssh("grace", "id -un; pwd; stat -c '%a %u:%g' .") == (0, "grace\n/home/grace\n700 20010:20000")

    script = "srun --account=def-curie_cpu sh -c 'id -u; echo $SLURM_JOB_ACCOUNT'"

    assert site.ssh("grace", script) == (0, "20010\ndef-curie_cpu")


def test_members_have_the_sites_spaces_at_login(site: Site) -> None:
    shown = site.ssh("grace", "bash -lc 'echo $SCRATCH $PROJECT; stat -c %U:%G $SCRATCH $PROJECT; readlink scratch'")

    assert shown[1].split() == [
        "/scratch/grace", "/project/curie-lab", "grace:ldapusers", "root:curie-lab", "/scratch/grace",
    ]  # fmt: skip


def test_who_does_not_match_the_filter_is_refused(site: Site) -> None:
    assert site.know("ctl1", "guest")
    assert site.ssh("guest", "true") == (255, "")
    assert "pam_sss(sshd:account): Access denied for user guest" in site.cluster.root(
        "ctl1", "journalctl --since=-10min"
    )


def test_a_group_of_the_directory_gives_nobody_sudo(site: Site) -> None:
    assert "not allowed to run sudo" in site.cluster.root("ctl1", "sudo -l -U grace", ok=False)
    assert not site.cluster.holds("ctl1", "getent -s sss group sudo")


def test_the_password_of_the_directory_is_roots_alone(site: Site) -> None:
    for node in NODES:
        assert site.cluster.root(node, "stat -c %U:%G /etc/sssd/sssd.conf") == "root:root"
        assert not site.cluster.holds(node, "su nobody -s /bin/sh -c 'cat /etc/sssd/sssd.conf'")
        assert not site.cluster.holds(node, f"journalctl --no-pager | grep -q {slapd.PASSWORD}")
    runs = site.cluster.directory / "runs"
    assert not [path for path in runs.rglob("*") if path.is_file() and slapd.PASSWORD.encode() in path.read_bytes()]


def test_a_second_deploy_changes_nothing(site: Site) -> None:
    started = [site.cluster.root(node, "systemctl show -P ActiveEnterTimestamp sssd") for node in NODES]

    assert set(site.cluster.changed(site.deploy()).values()) == {0}
    assert [site.cluster.root(node, "systemctl show -P ActiveEnterTimestamp sssd") for node in NODES] == started


def test_who_leaves_the_group_is_closed_and_who_joins_is_opened(site: Site) -> None:
    group = f"dn: cn=curie-lab,ou=groups,{slapd.BASE}\nchangetype: modify"
    slapd.modify(site.cluster, "ctl1", f"{group}\ndelete: memberUid\nmemberUid: lise")

    site.run("people", "sync")

    assert (site.limits("grace"), site.limits("lise")) == ({""}, {"0"})
    slapd.modify(site.cluster, "ctl1", f"{group}\nadd: memberUid\nmemberUid: lise")
    site.run("people", "sync")
    assert site.limits("lise") == {""}
    assert set(site.cluster.changed(site.run("people", "sync")).values()) == {0}
    listed = site.run("people", "list")["directory"]
    assert [(each["name"], each["accounts"]) for each in listed] == [("grace", ["def-curie"]), ("lise", ["def-curie"])]


def test_lookups_logins_and_accounts_go_on_while_the_directory_is_away(site: Site) -> None:
    site.cluster.root("ctl1", "systemctl stop slapd")
    try:
        for node in NODES:
            site.cluster.root(node, "systemctl restart sssd; sss_cache -E")
            wait_until(f"{node} answers from its cache", partial(site.know, node, "lise"))
        assert site.ssh("grace", "srun id -u") == (0, "20010")
        assert site.ssh("guest", "true") == (255, "")
        site.run("people", "sync")
        assert site.limits("lise") == {""}
    finally:
        site.cluster.root("ctl1", "systemctl start slapd")


def test_an_id_that_is_in_both_is_refused_on_all_nodes(site: Site) -> None:
    groups = "groups: [{name: def-lab, gid: 60001}]\n"
    people = "people: [{name: ada, uid: 20010, groups: [def-lab]}]\n"
    site.people.write_text(PEOPLE.replace("people: []\n", groups + people))
    try:
        failure = site.deploy(ok=False)["failures"][0]["message"]

        assert "ctl1: the id 20010 of the user ada is that of grace in the directory" in failure
        assert not [node for node in NODES if site.know(node, "ada")]
    finally:
        site.people.write_text(PEOPLE)


def test_keys_of_the_directory_open_no_account_of_the_nodes_own(site: Site) -> None:
    """Of an administrator's name, below 1000 and above, or with such an id: also if they come after the deploy."""
    public = site.key.with_suffix(".pub").read_text(encoding="utf-8").strip()
    users = [("ops", 20020), ("boss", 20021), ("eve", 1900), ("frank", 20022)]
    ldif = "".join(slapd.user(name, uid, public) for name, uid in users)
    site.cluster.root(
        "ctl1", "useradd -m -s /bin/bash -u 900 -G sudo ops; useradd -m -s /bin/bash -u 1900 -G sudo boss"
    )
    try:
        slapd.add(site.cluster, "ctl1", ldif)
        wait_until("the directory's new users are known", lambda: site.know("ctl1", "frank"))

        for name in ("ops", "boss", "eve"):
            code, output = site.ssh(name, "id -un")
            assert (code, "Permission denied" in output) == (255, True)
        # a home is made by the next deploy
        assert site.ssh("frank", "id -un >&2; cd /; exit 7")[0] == 7
        message = site.deploy(ok=False)["failures"][0]["message"]
        assert "ctl1: the user boss is in the directory as well, with the id 20021" in message
        assert "the user ops is in the directory as well, with the id 20020" in message
        assert "the id 1900 of the user boss is that of eve in the directory" in message
    finally:
        slapd.delete(site.cluster, "ctl1", [name for name, _uid in users])
        site.cluster.root("ctl1", "userdel -r ops; userdel -r boss; rm -rf /home/frank; sss_cache -E", ok=False)
    site.deploy()


def test_no_person_can_have_the_name_of_an_account_that_packages_made(site: Site) -> None:
    for node in NODES:
        lines = site.cluster.root(node, "cat /etc/passwd /etc/group").splitlines()
        names = {name for name, _password, number, *_rest in (line.split(":") for line in lines) if int(number) < 1000}
        assert sorted(name for name in names if not is_reserved(name)) == []


def test_a_server_of_another_authority_is_not_asked_at_all(site: Site) -> None:
    authority = site.cluster.directory / "directory-ca.pem"
    good = authority.read_text(encoding="utf-8")
    authority.write_text(site.cluster.root("ctl1", "cat /etc/ldap/tls/other.pem") + "\n")
    try:
        site.deploy()
        # nothing that the cache has
        site.cluster.root(
            "gpu02", "systemctl stop sssd; rm -f /var/lib/sss/db/* /var/lib/sss/mc/*; systemctl start sssd"
        )

        checks = site.failed_checks()

        assert {"environment-directory gpu01", "environment-directory-lookup gpu02"} <= set(checks)
        assert not site.know("gpu02", "grace")
    finally:
        authority.write_text(good)
    site.deploy()
    wait_until("gpu02 asks again", lambda: site.know("gpu02", "grace"))
