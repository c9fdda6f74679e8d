"""People of people.yml on real nodes: their logins, ids and jobs, until they expire. The cluster is left as it was."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.lab.harness import PATIENCE_S, LabCluster, edit, wait_until

NODES = ("ctl1", "gpu01", "gpu02")
COMPONENT = "environment"


@dataclass(frozen=True)
class Site:
    """The cluster with its people, and the key of ada."""

    cluster: LabCluster
    key: Path
    address: str

    def people(self, *words: str) -> str:
        return self.cluster.deepopsctl("people", *words).stdout

    def deploy(self, *options: str, ok: bool = True) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(
            self.cluster.deepopsctl("deploy", COMPONENT, "--json", *options, ok=ok).stdout
        )
        return document

    def failed_checks(self) -> list[str]:
        """The checks of `validate environment` about people that fail, with their targets."""
        document = json.loads(self.cluster.deepopsctl("validate", COMPONENT, "--json", ok=False).stdout)
        return [f"{check['name']} {check['target']}" for check in document["checks"] if check["status"] == "fail"]

    def ssh(self, script: str, *more: str) -> tuple[int, str]:
        """The exit code and output of a command that ada runs on the controller over SSH."""
        options = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "BatchMode=yes", *more)
        words = [word for option in options for word in ("-o", option)]
        argv = ["ssh", "-i", str(self.key), *words, f"ada@{self.address}", script]
        # what a shell with a terminal is typed; a command does not read it
        done = subprocess.run(argv, input="exit\n", capture_output=True, text=True, timeout=PATIENCE_S)
        return done.returncode, (done.stdout + done.stderr).strip()


@pytest.fixture(scope="module")
def site(deployed: LabCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Two people in one group, deployed."""
    key = tmp_path_factory.mktemp("people") / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    site = Site(deployed, key, deployed.root("ctl1", "hostname -I").split()[0])
    spec = deployed.directory / "cluster.yml"
    before = spec.read_text(encoding="utf-8")
    try:
        edit(spec, "components: [slurm]", "components: [slurm, environment]")
        site.people("add-group", "def-lab")
        site.people("add-group", "rrg-lab", "--end", "2026-01-01", "--shares", "2000")
        site.people("add", "ada", "--group", "def-lab", "--key", str(key.with_suffix(".pub")))
        site.people("add", "bea", "--group", "def-lab")
        site.deploy()
        yield site
    finally:
        spec.write_text(before, encoding="utf-8")
        (deployed.directory / "people.yml").unlink(missing_ok=True)
        deployed.root("ctl1", "scancel --user=ada", ok=False)
        deployed.root("ctl1", "sacctmgr -i delete user ada,bea", ok=False)
        deployed.root("ctl1", "sacctmgr -i delete account def-lab_cpu,def-lab_gpu,def-lab", ok=False)
        deployed.root("ctl1", "sacctmgr -i delete account rrg-lab_cpu,rrg-lab_gpu,rrg-lab", ok=False)
        for node in NODES:
            deployed.root(
                node, "userdel --remove ada; userdel --remove bea; groupdel def-lab; groupdel rrg-lab", ok=False
            )
            # how ubuntu logs in stays: its keys are there as well
            own = "/etc/ssh/deepopsctl/keys /etc/ssh/sshd_config.d/[04][01]-deepopsctl-*.conf"
            deployed.root(node, f"rm -rf {own}", ok=False)
            deployed.root(node, "rm -f /var/lib/deepopsctl/*/environment.people.json; systemctl reload ssh", ok=False)
        deployed.root(
            "ctl1", "systemctl disable --now deepops-account-dates.timer deepops-login-message.timer", ok=False
        )
        deployed.deploy()


def test_everything_that_is_validated_is_so_on_every_node(site: Site) -> None:
    assert site.failed_checks() == []
    assert len({site.cluster.root(node, "id ada") for node in NODES}) == 1


def test_a_key_of_people_yml_opens_the_login_and_the_home_is_there(site: Site) -> None:
    assert site.ssh("id -un; pwd; stat -c %a .") == (0, "ada\n/home/ada\n700")


def test_a_second_deploy_changes_nothing(site: Site) -> None:
    assert set(site.cluster.changed(site.deploy()).values()) == {0}


def test_a_project_has_its_shares_in_its_time_alone_also_between_deploys(site: Site) -> None:
    show = "sacctmgr -nP show assoc account=rrg-lab user= format=share,grpsubmitjobs wopl"
    due = "systemctl start deepops-account-dates"
    assert site.cluster.root("ctl1", show) == "0|0"

    site.cluster.root("ctl1", f"sed -i s/2026-01-01/2099-01-01/ /etc/deepopsctl/account-dates.json && {due}")
    assert site.cluster.root("ctl1", show) == "2000|"
    site.cluster.root("ctl1", f"sed -i s/2099-01-01/2026-01-01/ /etc/deepopsctl/account-dates.json && {due}")

    assert site.cluster.root("ctl1", show) == "0|0"
    assert set(site.cluster.changed(site.deploy()).values()) == {0}


def test_a_key_that_somebody_removed_comes_back(site: Site) -> None:
    site.cluster.root("gpu01", "rm /etc/ssh/deepopsctl/keys/ada")
    # the first is of all that deploys wrote
    assert site.failed_checks() == ["environment-installed gpu01", "environment-keys gpu01"]

    changed = site.cluster.changed(site.deploy())

    assert (changed["gpu01"], changed["gpu02"]) == (1, 0)
    assert site.failed_checks() == []


@pytest.mark.parametrize(
    ("options", "account"),
    [
        ("--account=def-lab --gpus=1", "def-lab_gpu"),
        ("--account=def-lab_cpu --gres=gpu:a100:1", "def-lab_gpu"),
        ("--account=def-lab-gpu", "def-lab_cpu"),
        ("--ntasks=1 --gpus-per-task=1", "def-lab_gpu"),
        ("", "def-lab_cpu"),
    ],
)
def test_a_job_is_charged_to_the_account_that_fits_what_it_asks_for(site: Site, options: str, account: str) -> None:
    if not site.cluster.holds("ctl1", "test -e /etc/slurm/job_submit.lua"):
        site.cluster.deepopsctl("deploy", "slurm")

    code, job = site.ssh(f"sbatch --parsable --hold {options} --wrap true 2>/dev/null")

    assert code == 0, job
    assert f" Account={account} " in site.cluster.root("ctl1", f"scontrol --oneliner show job {job}")
    # Slurm refuses it for a job that has asked with --gpus, which has the account already
    site.cluster.root("ctl1", f"scontrol update jobid={job} gres=gpu:1", ok=False)
    assert site.ssh(f"scontrol update jobid={job} account=def-lab && scancel {job}") == (0, "")
    wait_until(
        "the change is accounted",
        lambda: "def-lab_gpu" in site.cluster.root("ctl1", f"sacct -Xn -j {job} -o account%20"),
    )


def test_a_login_node_refuses_passwords_and_shows_the_state_to_terminals_only(site: Site) -> None:
    shown = site.ssh("true", "PreferredAuthentications=password", "LogLevel=INFO")
    assert shown[0] == 255
    assert "Permission denied (publickey)" in shown[1]
    wait_until("the state is written", lambda: site.cluster.holds("ctl1", "test -s /run/motd.d/deepopsctl"))

    assert site.ssh("true") == (0, "")
    # a shell with a terminal; its input ends at once
    assert "partition  nodes  idle" in site.ssh("", "RequestTTY=force", "LogLevel=ERROR")[1]


def test_an_id_that_is_somebody_elses_changes_nothing_on_any_node(site: Site) -> None:
    people = site.cluster.directory / "people.yml"
    before = people.read_text(encoding="utf-8")
    site.cluster.root("gpu02", "useradd --uid 60700 cleo")
    try:
        site.people("add", "cleo", "--group", "def-lab", "--uid", "60701")

        failure = site.deploy(ok=False)["failures"][0]["message"]

        assert "gpu02: the user cleo has the id 60700 here, 60701 in people.yml" in failure
        assert not site.cluster.holds("ctl1", "id cleo")
        assert not site.cluster.holds("gpu01", "id cleo")
    finally:
        people.write_text(before, encoding="utf-8")
        site.cluster.root("gpu02", "userdel cleo")


def test_what_dot_files_start_in_a_validation_ends_with_it(site: Site) -> None:
    profile = "setsid nohup sleep 31337 >/dev/null 2>&1 &\nsleep 31338 &\ntouch ~/profile-ran\nsudo -n true\n"
    for node in NODES:
        site.cluster.root(node, f"printf '{profile}' >~ada/.bash_profile; chown ada ~ada/.bash_profile")
    try:
        assert site.failed_checks() == []
        assert all(site.cluster.holds(node, "[ -e ~ada/profile-ran ]") for node in NODES)
        assert not any(site.cluster.holds(node, "pgrep -u ada -f 'sleep 3133'") for node in NODES)
        assert not any(site.cluster.holds(node, "systemctl list-units --all | grep deepopsctl-login") for node in NODES)
    finally:
        for node in NODES:
            site.cluster.root(node, "pkill -u ada -f 'sleep 3133'; rm -f ~ada/.bash_profile ~ada/profile-ran", ok=False)


def is_held(cluster: LabCluster, job: str) -> bool:
    shown = cluster.root("ctl1", f"squeue --noheader --jobs={job} --states=PENDING --format=%r")
    return "AssocMaxJobsLimit" in shown


def test_who_expires_keeps_the_job_and_loses_login_and_submission(site: Site) -> None:
    code, job = site.ssh("sbatch --parsable --wrap 'sleep infinity'")
    assert code == 0, job
    again = "--requeue --wrap 'sleep 5; scontrol requeue $SLURM_JOB_ID; sleep 600'"
    requeued, array = (site.ssh(f"sbatch --parsable {w}")[1] for w in (again, "--array=1-9%1 --wrap 'sleep 300'"))
    wait_until("the job runs", lambda: "R" in site.cluster.root("ctl1", f"squeue --noheader --jobs={job} --format=%t"))
    site.people("expire", "ada")

    warnings = site.deploy()["warnings"]

    assert [text for text in warnings if f"ada: job {job}, RUNNING" in text]
    assert site.ssh("true") == (255, "")
    # the client shows it only with messages that are switched off here
    assert "account ada has expired" in site.cluster.root("ctl1", "journalctl --since=-10min")
    refused = site.cluster.root("ctl1", "runuser -u ada -- sbatch --chdir=/tmp --wrap true", ok=False)
    assert "AssocMaxSubmitJobLimit" in refused
    assert site.cluster.root("ctl1", f"squeue --noheader --jobs={job} --format=%t") == "R"
    # what was submitted before does not start any more: the job that requeues itself, the rest of the array
    for each in (requeued, array):
        wait_until(f"{each} is held", partial(is_held, site.cluster, each))
    site.cluster.root("ctl1", "systemctl start deepops-account-dates")
    listed = site.cluster.root("ctl1", "journalctl -u deepops-account-dates -n 5")
    assert "ada has expired and still has jobs:" in listed
    assert f"{job} RUNNING" in listed
    # the suite continues with bea's job
    assert site.failed_checks() == []
    assert set(site.cluster.changed(site.deploy()).values()) == {0}


def test_jobs_of_who_expires_can_be_cancelled_at_once(site: Site) -> None:
    site.people("expire", "ada", "--cancel")

    wait_until("no job of ada's is left", lambda: not site.cluster.root("ctl1", "squeue --noheader --user=ada"))


def test_who_is_removed_from_the_file_expires_and_is_named(site: Site) -> None:
    people = site.cluster.directory / "people.yml"
    lines = people.read_text(encoding="utf-8").splitlines(keepends=True)
    people.write_text("".join(line for line in lines if "name: bea" not in line), encoding="utf-8")

    warnings = site.deploy()["warnings"]

    named = "no longer in people.yml, account expired, files left as they are: bea"
    assert [text for text in warnings if named in text] == [f"ctl1: {named}"]
    assert [site.cluster.root(node, "id -u bea; getent shadow bea | cut -d: -f8").split()[1] for node in NODES] == [
        "1"
    ] * 3
    accounts = site.cluster.root("ctl1", "sacctmgr -nP show assoc user=bea format=maxsubmitjobs wopl")
    assert set(accounts.split()) == {"0"}
