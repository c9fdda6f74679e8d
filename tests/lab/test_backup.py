"""A controller that is lost while jobs run and wait, and comes back from a backup."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from deepopsctl.lab.podman import podman
from tests.lab.harness import PREFIX, LabCluster, fresh_cluster, lab_up, wait_until

NAME = f"{PREFIX}-backup"
REPOSITORY = "/backup"
FORGET = (
    'eval $(python3 -c \'import json; c = json.load(open("/etc/deepopsctl/backup.json")); '
    'print("export RESTIC_REPOSITORY=" + c["repository"] + " RESTIC_PASSWORD=" + c["password"])\'); '
    "restic --no-cache forget --quiet"
)
HISTORY = "sacct -aXP -o jobid,jobname,submit,account,user"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    with fresh_cluster(NAME, tmp_path_factory, "--compute", "2") as cluster:
        settings = cluster.directory / "inventory" / "group_vars" / "all" / "settings.yml"
        settings.write_text(f"{settings.read_text('utf-8')}slurm_backup_repository: {REPOSITORY}\n", "utf-8")
        assert cluster.deploy()["ok"]
        yield cluster


def submit(cluster: LabCluster, *words: str) -> str:
    return cluster.root("ctl1", f"sbatch --parsable --output=/dev/null {' '.join(words)}")


def state_of(cluster: LabCluster, job: str) -> str:
    return cluster.root("ctl1", f"squeue --noheader --all --jobs={job} --format=%T", ok=False)


def without(job: str, history: str) -> list[str]:
    return [line for line in history.splitlines() if not line.startswith(f"{job}|")]


@pytest.mark.timeout(3600)
def test_a_lost_controller_comes_back_with_its_queue_its_history_and_its_running_jobs(
    cluster: LabCluster, tmp_path: Path
) -> None:
    done = submit(cluster, "--wait --wrap hostname")
    runs = submit(cluster, "--nodelist=cn01 --wrap 'sleep 10000 & wait $! || true'")
    lost = submit(cluster, "--nodelist=cn02 --wrap 'sleep 10000'")
    waits = submit(cluster, f"--dependency=afterok:{runs} --wrap hostname")
    began = submit(cluster, "--begin=now+1day --no-requeue --nodelist=cn01 --wrap 'sleep 9999'")
    wait_until("two jobs run", lambda: {state_of(cluster, runs), state_of(cluster, lost)} == {"RUNNING"})
    cluster.deepopsctl("backup", "run")
    verified = json.loads(cluster.deepopsctl("backup", "verify", "--json").stdout)["nodes"][0]
    assert verified["jobs"] == 4
    history, keys = cluster.root("ctl1", HISTORY), cluster.root("ctl1", "sha256sum /etc/munge/munge.key; id slurm")
    pid = cluster.root("cn01", "pgrep -x -f 'sleep 10000'")
    # waited when the set was made, and runs when the controller is lost
    cluster.root("ctl1", f"scontrol update jobid={began} starttime=now")
    wait_until("it runs", lambda: cluster.holds("cn01", "pgrep -x -f 'sleep 9999'"))

    # the repository is a share that a person mounts on the new machine
    podman("cp", f"{NAME}-ctl1:{REPOSITORY}", str(tmp_path / "share"))
    podman("rm", "--force", "--time", "0", f"{NAME}-ctl1")
    cluster.root("cn02", "pkill -9 slurmstepd; pkill -9 sleep", ok=False)
    lab_up(NAME, "--compute", "2")
    podman("cp", str(tmp_path / "share"), f"{NAME}-ctl1:{REPOSITORY}")
    # the new machine has another name, and the first try stops after the state was put in place
    spec = cluster.directory / "cluster.yml"
    spec.write_text(spec.read_text("utf-8").replace("ctl1", "head1"), "utf-8")
    cluster.deepopsctl("ssh", "setup", "--accept-new-keys", "head1", "--password-file", str(cluster.password_file))
    # podman mounts it, so that it can't be replaced
    cluster.root("ctl1", "umount /etc/hostname")
    cluster.root("ctl1", "systemctl mask --quiet slurmctld")
    assert not json.loads(cluster.deepopsctl("restore", "--yes", "--json", ok=False).stdout)["ok"]
    cluster.root("ctl1", "systemctl unmask --quiet slurmctld")
    refused = cluster.deploy(ok=False)["failures"][0]["message"]
    assert "a restore of head1 has not ended: `deepopsctl restore` continues" in refused

    restored = json.loads(cluster.deepopsctl("restore", "--yes", "--json").stdout)

    assert restored["ok"]
    assert cluster.root("ctl1", "sinfo --noheader --format=%a") == "up"
    assert any(f"held: {lost} " in warning for warning in restored["warnings"])
    assert any("have started since" in warning and f"held: {began} " in warning for warning in restored["warnings"])
    assert cluster.root("ctl1", f"squeue -h -j {began} -o '%T %Q'") == "PENDING 0"
    assert not cluster.holds("cn01", "pgrep -x -f 'sleep 9999'")
    # a held job is not eligible, so sacct names it only where it is asked for it
    assert without(lost, cluster.root("ctl1", HISTORY)) == without(lost, history)
    assert cluster.root("ctl1", f"sacct -nXP -o jobname,user -j {lost}") == "wrap|root"
    assert cluster.root("ctl1", "sha256sum /etc/munge/munge.key; id slurm") == keys
    assert (state_of(cluster, runs), state_of(cluster, lost), state_of(cluster, waits)) == (
        "RUNNING",
        "PENDING",
        "PENDING",
    )
    assert cluster.root("cn01", "pgrep -x -f 'sleep 10000'") == pid
    assert int(submit(cluster, "--wait --wrap hostname")) > int(waits) + 1000
    assert cluster.changed(cluster.deploy()) == {"head1": 0, "cn01": 0, "cn02": 0}
    # a job of the lost controller reports its end to the new one, and jobs that depend on it run
    cluster.root("cn01", f"kill {pid}")
    wait_until("both jobs ended", lambda: state_of(cluster, runs) == state_of(cluster, waits) == "")
    ended = cluster.root("ctl1", f"sacct -nXP -o state -j {runs},{waits}")
    assert ended.splitlines() == ["COMPLETED", "COMPLETED"]
    assert done in history


def test_a_cluster_that_was_not_lost_is_left_alone(cluster: LabCluster) -> None:
    refused = cluster.deepopsctl("restore", "--yes", "--json", ok=False)

    assert refused.returncode == 1
    assert "nothing was changed" in json.loads(refused.stdout)["failures"][0]["message"]
    assert set(cluster.changed(cluster.deploy()).values()) == {0}


# run by root of the controller: the newest set again as a user with the repository's password could change it
HOSTILE = """
import hashlib, json, os, subprocess, sys
config = json.load(open("/etc/deepopsctl/backup.json"))
env = {**os.environ, "RESTIC_REPOSITORY": config["repository"], "RESTIC_PASSWORD": config["password"], "HOME": "/root"}
def restic(*words):
    return subprocess.run(["restic", *words], env=env, check=True, capture_output=True, text=True).stdout
newest = max(json.loads(restic("snapshots", "--json")), key=lambda each: each["time"])
place = newest["paths"][0]
restic("restore", newest["id"], "--target", "/")
lines = {"command": "\\\\! touch /tmp/ran\\n", "statement": "/*!40000 CREATE USER evil */;\\n"}
with open(place + "/accounting.sql", "a") as dump:
    dump.write(lines.get(sys.argv[1], ""))
if sys.argv[1] == "link":
    os.symlink("/etc/shadow", place + "/state/more")
if sys.argv[1] == "configuration":
    with open(place + "/files/etc/slurm/slurm.conf", "a") as conf:
        conf.write("SlurmUser=root\\nPluginDir=/tmp/none\\nInclude /tmp/none/more\\nSlurmctldPort=1-0\\n")
manifest = json.load(open(place + "/manifest.json"))
for name in manifest["files"]:
    manifest["files"][name] = hashlib.sha256(open(os.path.join(place, name), "rb").read()).hexdigest()
json.dump(manifest, open(place + "/manifest.json", "w"))
made = restic("backup", "--json", "--host", newest["hostname"], "--tag", ",".join(newest["tags"]), place)
print(json.loads(made.splitlines()[-1])["snapshot_id"][:8])
subprocess.run(["rm", "-rf", place])
"""


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("command", "is none of a table's, so nothing of it is restored"),
        ("statement", "CREATE USER privilege"),
        ("link", "which is not a plain file or directory of a set: nothing of it is restored"),
    ],
)
def test_a_set_that_others_changed_is_refused_and_runs_nothing(cluster: LabCluster, what: str, words: str) -> None:
    cluster.root("ctl1", f"rm -f /tmp/ran; cat > /root/hostile.py <<'EOF'\n{HOSTILE}\nEOF")
    changed = cluster.root("ctl1", f"python3 /root/hostile.py {what}")

    refused = cluster.deepopsctl("backup", "verify", changed, ok=False)

    cluster.root("ctl1", f"{FORGET} {changed}")
    assert (refused.returncode, words in refused.stderr) == (1, True), refused.stderr
    assert not cluster.holds("ctl1", "ls /tmp/ran")
    assert cluster.root("ctl1", "mariadb --batch -N -e \"SELECT COUNT(*) FROM mysql.user WHERE user = 'evil'\"") == "0"


def test_a_rehearsal_takes_its_settings_from_the_controller(cluster: LabCluster) -> None:
    cluster.root("ctl1", f"cat > /root/hostile.py <<'EOF'\n{HOSTILE}\nEOF")
    changed = cluster.root("ctl1", "python3 /root/hostile.py configuration")

    assert cluster.parsed("backup", "verify", changed)["nodes"][0]["rows"]
    cluster.root("ctl1", f"{FORGET} {changed}")


def test_a_damaged_backup_is_noticed(cluster: LabCluster) -> None:
    cluster.deepopsctl("backup", "run")
    cluster.root("ctl1", f"for file in {REPOSITORY}/data/*/*; do chmod 600 $file; echo x > $file; done")

    verified = cluster.deepopsctl("backup", "verify", ok=False)
    made = cluster.deepopsctl("backup", "run", ok=False)

    assert (verified.returncode, made.returncode) == (1, 1)
    status = json.loads(cluster.deepopsctl("status", "--json", ok=False).stdout)
    assert any("the last backup failed" in entry["message"] for entry in status["findings"])
