"""What researchers meet: MPI by a plain srun, a job out of memory, `usage`, and damages that `validate` has to see."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest

from tests.lab.harness import SETTINGS, LabCluster, edit, wait_until
from tests.lab.smoke import damaged, validate

NODES = ("ctl1", "gpu01", "gpu02")
SITE = """
storage:
  - {name: scratch, type: local, source: /srv/shared/scratch, path: /scratch, local: {shared: true}}
  - {name: software, type: local, source: /srv/shared/software, path: /opt/software, local: {shared: true}}
spaces: {scratch: {storage: scratch}}
billing: {gpus: {a100: 4.0}}
"""
PEOPLE = """\
schema: 1
groups:
  - {name: def-curie, gid: 60001}
  - {name: rrg-bohr, gid: 60002}
people:
  - {name: alice, uid: 60010, groups: [def-curie]}
  - {name: carol, uid: 60012, groups: [def-curie, rrg-bohr]}
"""
HOG = "held = []\nwhile True: held.append(bytearray(10 << 20))\n"
WHEEL = "demo-1.0-py3-none-any.whl"
MAKE_WHEEL = f"""\
import hashlib, zipfile
with zipfile.ZipFile("/opt/software/wheels/{WHEEL}", "w") as archive:
    archive.writestr("demo.py", "x" * 100000)
    archive.writestr("demo-1.0.dist-info/METADATA", "Name: demo")
print(hashlib.sha256(open("/opt/software/wheels/{WHEEL}", "rb").read()).hexdigest())
"""
PROGRAM = """\
#include <mpi.h>
#include <stdio.h>
int main(int c, char **v) { int r, s; MPI_Init(&c, &v); MPI_Comm_rank(MPI_COMM_WORLD, &r);
MPI_Comm_size(MPI_COMM_WORLD, &s); printf("rank %d of %d\\n", r, s); MPI_Finalize(); }
"""
MPI = "module load openmpi; mpicc hello.c -o hello && srun {options} ./hello 2>/dev/null"


@pytest.fixture(scope="module")
def centre(battered: LabCluster) -> Iterator[LabCluster]:
    """The cluster with people, spaces, billing, MPI and a wheelhouse with one wheel; all is reverted."""
    spec, settings = battered.directory / "cluster.yml", battered.directory / SETTINGS
    before, settings_before = spec.read_text(encoding="utf-8"), settings.read_text(encoding="utf-8")
    battered.root("ctl1", "mkdir -p /srv/shared/scratch /srv/shared/software/wheels && chmod 1777 /srv/shared")
    try:
        edit(spec, "components: [slurm", "components: [storage, slurm, environment")
        spec.write_text(spec.read_text(encoding="utf-8") + SITE, encoding="utf-8")
        edit(settings, "---\n", "---\nmodules_software: [python, gcc, openmpi]\nmodules_wheels: /opt/software/wheels\n")
        (battered.directory / "people.yml").write_text(PEOPLE, encoding="utf-8")
        battered.deepopsctl("deploy")
        digest = battered.root("ctl1", f"python3 -c {shlex.quote(MAKE_WHEEL)}")
        (battered.directory / "wheels.sha256").write_text(f"{digest}  {WHEEL}\n", encoding="utf-8")
        for name, text in (("hog.py", HOG), ("hello.c", PROGRAM)):
            battered.root("ctl1", f"printf %s {shlex.quote(text)} >/srv/shared/{name}")
        yield battered
    finally:
        for name in ("people.yml", "wheels.sha256"):
            (battered.directory / name).unlink(missing_ok=True)
        settings.write_text(settings_before, encoding="utf-8")
        spec.write_text(f"{before}storage: []\n", encoding="utf-8")
        battered.deepopsctl("deploy", "storage", "slurm", ok=False)
        spec.write_text(before, encoding="utf-8")
        for node in NODES:
            battered.root(node, "userdel -r alice; userdel -r carol; groupdel def-curie; groupdel rrg-bohr", ok=False)
        battered.root("ctl1", "rm -rf /srv/shared/*", ok=False)


@pytest.mark.parametrize("options", ["-n 2", "-N 2 -n 2"])
def test_a_plain_srun_starts_one_mpi_program(centre: LabCluster, options: str) -> None:
    copy = "d=$(mktemp -d -p /srv/shared) && chmod 755 $d && cd $d && cp /srv/shared/hello.c ."

    shown = centre.user("ctl1", f"{copy} && {MPI.format(options=options)}")

    assert sorted(line for line in shown.splitlines() if line.startswith("rank")) == ["rank 0 of 2", "rank 1 of 2"]


def test_a_job_killed_for_its_memory_hears_that_it_needs_more(centre: LabCluster) -> None:
    wrap = shlex.quote("exec python3 /srv/shared/hog.py")
    job = centre.user("ctl1", f"sbatch --parsable --output=/dev/null --mem=50M --wrap {wrap}").strip()
    wait_until(
        "the accounting has its end",
        lambda: "OUT_OF_MEMORY" in centre.root("ctl1", f"sacct -nX -j {job} -o State%20", ok=False),
    )

    shown = centre.user("ctl1", f"seff {job}")

    assert "it was killed because it needed more memory than 50 MiB: ask for more, for example --mem=100M" in shown
    assert "not available" not in shown


def test_users_read_their_own_use_and_nobody_elses_file(centre: LabCluster) -> None:
    centre.root("ctl1", "systemctl start deepops-account-usage")

    shown = centre.root("ctl1", "su - alice -c usage")

    billed, heading, ended = shown.partition("Jobs that have ended")
    assert [line.split()[0] for line in billed.splitlines() if line][1:] == ["account", "def-curie", "alice"]
    assert {line.split()[1] for line in f"{heading}{ended}".splitlines()[2:]} <= {"user", "alice"}
    assert not centre.holds("ctl1", "su - alice -c 'cat /var/lib/deepopsctl/usage/carol.json'")


def test_every_damage_is_seen_by_validate(centre: LabCluster) -> None:
    gcc = "/opt/deepopsctl/modulefiles/gcc/14"
    wheel = f"/opt/software/wheels/{WHEEL}"
    steps = (
        # another person's space, not the first's
        ("ctl1", "rmdir /scratch/carol", "mkdir -m 700 /scratch/carol && chown carol:carol /scratch/carol"),
        ("gpu01", f"mv {gcc} /root/gcc", f"mv /root/gcc {gcc}"),
        ("ctl1", f"cp {wheel} /root/ && truncate -s 5000 {wheel}", f"cp /root/{WHEEL} {wheel}"),
        ("ctl1", "systemctl stop deepops-job-mail.path", "systemctl start deepops-job-mail.path"),
        ("ctl1", "mv /etc/slurm/job_submit.lua /root/", "mv /root/job_submit.lua /etc/slurm/"),
    )

    with damaged(centre, *steps):
        result = validate(centre, suite="environment")

    assert result.code == 1
    assert "/scratch/carol: No such file or directory" in result.message("environment-space-owners", "gpu02")
    assert f"{gcc} was removed" in result.message("environment-installed", "gpu01")
    on_controller = result.message("environment-installed", "ctl1")
    assert "deepops-job-mail.path is inactive" in on_controller
    assert "/etc/slurm/job_submit.lua was removed" in on_controller
    assert f"{WHEEL} is not whole" in result.message("environment-wheels", "ctl1")


def test_people_get_their_accounts_though_a_unit_fails(centre: LabCluster) -> None:
    people = centre.directory / "people.yml"
    before = people.read_text(encoding="utf-8")
    unit = "/etc/systemd/system/deepops-job-mail.path"
    people.write_text(f"{before}  - {{name: dora, uid: 60013, groups: [def-curie]}}\n", encoding="utf-8")
    try:
        # a file can't replace what is at the unit's place
        with damaged(centre, ("ctl1", f"rm {unit}; mkdir {unit}", f"rmdir {unit}")):
            failed = centre.deepopsctl("deploy", "environment", ok=False)

        assert failed.returncode == 1
        assert "dora" in centre.root("ctl1", "sacctmgr -nP show assoc where account=def-curie format=user")
        centre.deepopsctl("deploy", "environment")
    finally:
        people.write_text(before, encoding="utf-8")
        for node in NODES:
            centre.root(node, "userdel -r dora", ok=False)
        centre.root("ctl1", "sacctmgr -i delete user dora", ok=False)
