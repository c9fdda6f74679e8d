"""What slurmd calls around jobs on the nodes: the rendered programs themselves, on directories of this machine."""

from __future__ import annotations

import os
import runpy
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jinja2
import pytest
import yaml

from tests.support.paths import ROOT
from tests.support.role_templates import render

# Of jobs that run and don't. The programs look at all processes of this machine: no cluster has such numbers, nor has
# another run of these tests, whose steps would be taken for this run's.
JOB, OVER, OTHER = (f"{first}{os.getpid():09}" for first in (42, 43, 44))


def render_with(values: dict[str, str], name: str) -> str:
    """A template as the role fills it in from the inventory's variable."""
    role = yaml.safe_load((ROOT / "roles/node_common/vars/main.yml").read_text(encoding="utf-8"))
    variables = {"node_common_job_directories": values, "inventory_hostname": "gpu01"}
    directory = jinja2.Template(role["__node_common_job_directory"]).render(variables)
    return render("node_common", name, __node_common_job_directory=directory, **variables)


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def run(path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {
        "SLURM_JOB_ID": JOB,
        "SLURM_JOB_UID": str(os.getuid()),
        "SLURM_JOB_GID": str(os.getgid()),
        **environment,
    }
    path_variable = {"PATH": f"{path.parent}/bin:{os.environ['PATH']}"}
    return subprocess.run([path, *arguments], env=path_variable | variables, capture_output=True, text=True, timeout=60)


@pytest.fixture
def jobs_path(tmp_path: Path) -> Path:
    path = tmp_path / "slurm-jobs"
    path.mkdir()
    return path


def directories(tmp_path: Path, method: str) -> Path:
    values = {"directory": str(tmp_path / "slurm-jobs"), "method": method}
    return program(tmp_path / "job-directories", render_with(values, "job-directories.j2"))


@pytest.fixture
def made(tmp_path: Path) -> Path:
    return directories(tmp_path, "prolog")


def of_task(tmp_path: Path, method: str) -> Path:
    values = {"directory": str(tmp_path / "slurm-jobs"), "method": method}
    return program(tmp_path / "of-task", render_with(values, "job-directory-of-task.j2"))


@contextmanager
def process_called(name: str, path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that goes by this name."""
    with subprocess.Popen(["bash", "-c", f"exec -a '{name}' {path} 600"]) as process:
        try:
            deadline = time.monotonic() + 30
            while name.encode() not in Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0"):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            yield process
        finally:
            process.kill()


def among_mounts(script: str) -> str:
    """What a shell script prints that mounts things, which are gone with it."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("no mounts can be made here")
    done = subprocess.run(["unshare", "--mount", "bash", "-ec", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def slurmstepd(tmp_path: Path) -> Path:
    """A program of this name."""
    return Path(shutil.copy(shutil.which("sleep") or "", tmp_path / "slurmstepd"))


@pytest.fixture
def step(slurmstepd: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that calls itself as slurmstepd does."""
    with process_called(f"slurmstepd: [{JOB}.extern]", slurmstepd) as process:
        yield process


class TestOwnDirectory:
    def test_it_is_there_for_the_user_alone_and_goes_with_the_job(self, made: Path, jobs_path: Path) -> None:
        assert run(made, "make").returncode == 0
        status = (jobs_path / JOB).stat()
        assert stat.S_IMODE(status.st_mode) == 0o700
        assert status.st_uid == os.getuid()

        (jobs_path / JOB / "77").mkdir()
        (jobs_path / JOB / "77" / "file").write_text("data")
        assert run(made, "remove").returncode == 0
        assert list(jobs_path.iterdir()) == []

    def test_a_requeued_job_starts_with_an_empty_one(self, made: Path, jobs_path: Path) -> None:
        (jobs_path / JOB).mkdir()
        (jobs_path / JOB / "from before").write_text("")

        assert run(made, "make").returncode == 0
        assert [path.name for path in jobs_path.iterdir()] == [JOB]
        assert list((jobs_path / JOB).iterdir()) == []

    def test_that_of_a_job_that_runs_stays_as_it_is(
        self, made: Path, jobs_path: Path, step: subprocess.Popen[bytes]
    ) -> None:
        (jobs_path / JOB).mkdir()
        (jobs_path / JOB / "data").write_text("")

        assert run(made, "make").returncode == 0
        assert (jobs_path / JOB / "data").exists()
        assert step.poll() is None

    def test_links_in_it_are_not_followed(self, made: Path, jobs_path: Path, tmp_path: Path) -> None:
        (tmp_path / "precious").mkdir()
        (tmp_path / "precious" / "file").write_text("")
        run(made, "make")
        (jobs_path / JOB / "link").symlink_to(tmp_path / "precious")

        run(made, "remove")

        assert (tmp_path / "precious" / "file").exists()
        assert list(jobs_path.iterdir()) == []

    def test_a_link_in_the_place_of_the_directory_is_refused(self, made: Path, jobs_path: Path, tmp_path: Path) -> None:
        jobs_path.rmdir()
        (tmp_path / "elsewhere" / JOB).mkdir(parents=True)
        jobs_path.symlink_to(tmp_path / "elsewhere")

        for action in ("make", "remove", "sweep"):
            done = run(made, action)
            assert (done.returncode, done.stderr) == (1, f"{jobs_path} is not a directory\n")
        assert (tmp_path / "elsewhere" / JOB).exists()

    def test_a_directory_that_others_may_write_to_is_refused(self, made: Path, jobs_path: Path) -> None:
        (jobs_path / OVER).mkdir()
        jobs_path.chmod(0o1777)

        for action in ("make", "remove", "sweep"):
            assert run(made, action).stderr == f"{jobs_path} must belong to root, and no other user may write there\n"
        assert [path.name for path in jobs_path.iterdir()] == [OVER]

    def test_a_number_that_is_none_is_refused(self, made: Path, jobs_path: Path) -> None:
        for job in ("", ".", "../x", "1/2", "7\n8"):
            assert run(made, "make", SLURM_JOB_ID=job).returncode == 1
        assert list(jobs_path.iterdir()) == []

    @pytest.mark.parametrize("method", ["prolog", "namespace"])
    def test_nothing_is_unmounted_or_removed_through_what_a_user_made(self, tmp_path: Path, method: str) -> None:
        made, jobs_path = directories(tmp_path, method), tmp_path / "slurm-jobs"
        # what is mounted in `part` is of the same file system: rm's --one-file-system does not see it
        done = among_mounts(
            f"""
            cd {tmp_path}; mkdir -p home part slurm-jobs/{JOB}/in slurm-jobs/{OVER}/in slurm-jobs/{OTHER}
            mount -t tmpfs none home; touch home/file part/file slurm-jobs/{JOB}/data
            chown 65534 slurm-jobs/*
            ln -s {tmp_path}/home slurm-jobs/{JOB}/.ns
            mount --bind home slurm-jobs/{JOB}/in
            mount --bind part slurm-jobs/{OVER}/in
            mount --bind home slurm-jobs/{OTHER}
            {made} sweep
            mountpoint home; ls home part
            SLURM_JOB_ID={OTHER} SLURM_JOB_UID=0 SLURM_JOB_GID=0 {made} make; echo status=$?
            """
        )

        assert "home is a mountpoint\nhome:\nfile\n\npart:\nfile\n" in done
        assert "stays: a part of the same file system is mounted in it" in done
        # nor does it keep a job that starts again from its node
        assert f"{jobs_path}/{OTHER} stays: something is mounted there\nstatus=0" in done
        assert not list(jobs_path.glob(f"*{JOB}/data"))


class TestSweep:
    def test_what_a_crash_left_goes_and_what_runs_stays_with_all_in_it(
        self, made: Path, jobs_path: Path, step: subprocess.Popen[bytes]
    ) -> None:
        # numbers that begin like a running job's are other jobs; in its own directory there may be any number
        for name in (f"{JOB}/{OVER}", OVER, JOB[:-1], f"{JOB}1", f".gone.5.{OTHER}", "lost+found", "17x"):
            (jobs_path / name / "deep").mkdir(parents=True)

        assert run(made, "sweep").returncode == 0

        assert sorted(path.name for path in jobs_path.iterdir()) == ["17x", JOB, "lost+found"]
        assert (jobs_path / JOB / OVER / "deep").exists()
        assert step.poll() is None

    def test_the_plugins_directory_of_the_node_is_swept_too(self, tmp_path: Path, jobs_path: Path) -> None:
        (jobs_path / "gpu01" / OVER).mkdir(parents=True)

        run(directories(tmp_path, "namespace"), "sweep")

        assert list((jobs_path / "gpu01").iterdir()) == []

    def test_a_program_with_roots_rights_that_a_user_calls_so_is_no_step(
        self, made: Path, jobs_path: Path, slurmstepd: Path
    ) -> None:
        slurmstepd.chmod(0o4755)
        (jobs_path / JOB).mkdir()
        with process_called(f"slurmstepd: [{JOB}.batch]", slurmstepd):
            assert run(made, "sweep").returncode == 0
        assert list(jobs_path.iterdir()) == []

    def test_the_epilog_leaves_new_directories_of_other_jobs_alone(self, made: Path, jobs_path: Path) -> None:
        # a prolog has just made it, the job has no step yet
        (jobs_path / OVER).mkdir()
        # its user may have said what he likes of its time
        os.utime(jobs_path / OVER, (0, 0))

        run(made, "remove")

        assert [path.name for path in jobs_path.iterdir()] == [OVER]


class TestReport:
    def test_tasks_learn_where_it_is(self, tmp_path: Path, jobs_path: Path) -> None:
        (jobs_path / JOB).mkdir()
        own = f"export SLURM_TMPDIR={jobs_path / JOB}"

        assert run(of_task(tmp_path, "prolog")).stdout.splitlines() == [own, f"export TMPDIR={jobs_path / JOB}"]
        assert run(of_task(tmp_path, "prolog"), TMPDIR=str(jobs_path)).stdout.splitlines() == [own]

    def test_a_job_of_before_the_setting_gets_nothing(self, tmp_path: Path) -> None:
        assert run(of_task(tmp_path, "prolog")).stdout == ""
        if Path("/tmp").stat().st_uid != os.getuid():
            assert run(of_task(tmp_path, "namespace")).stdout == ""


class TestPieces:
    @pytest.fixture(autouse=True)
    def commands(self, tmp_path: Path) -> Path:
        """What the programs call besides the pieces: it writes down how."""
        log = tmp_path / "log"
        for name in ("logger", "scontrol"):
            program(tmp_path / "bin" / name, f'#!/bin/sh\necho "{name} $*" >>{log}\n')
        return log

    @staticmethod
    def prolog(tmp_path: Path, kind: str = "prolog", **site: str) -> Path:
        return program(tmp_path / kind, render("node_common", "pieces.j2", kind=kind, node_common_job_programs=site))

    def test_they_run_in_the_order_of_their_names(self, tmp_path: Path) -> None:
        for name in ("20-b", "10-a"):
            program(tmp_path / "prolog.d" / name, "#!/bin/sh\necho ${0##*/}\n")
        (tmp_path / "prolog.d" / "30-no-program").write_text("echo no\n")

        done = run(self.prolog(tmp_path))

        assert (done.returncode, done.stdout) == (0, "10-a\n20-b\n")

    def test_without_any_they_do_nothing(self, tmp_path: Path) -> None:
        assert run(self.prolog(tmp_path)).returncode == 0

    def test_one_that_fails_is_reported_and_the_job_goes_on(self, tmp_path: Path, commands: Path) -> None:
        program(tmp_path / "prolog.d" / "10-a", "#!/bin/sh\nexit 3\n")
        program(tmp_path / "prolog.d" / "20-b", "#!/bin/sh\necho on\n")

        done = run(self.prolog(tmp_path))

        assert (done.returncode, done.stdout.splitlines()) == (0, ["prolog 10-a ended with status 3", "on"])
        assert commands.read_text() == f"logger --tag deepopsctl-prolog job {JOB}: prolog 10-a ended with status 3\n"

    def test_one_that_is_required_drains_its_node_with_a_reason(self, tmp_path: Path, commands: Path) -> None:
        program(tmp_path / "prolog.d" / "10-a.required", "#!/bin/sh\nexit 3\n")
        program(tmp_path / "prolog.d" / "20-b", "#!/bin/sh\necho on\n")

        done = run(self.prolog(tmp_path), SLURMD_NODENAME="gpu01")

        assert (done.returncode, done.stdout) == (1, "prolog 10-a.required ended with status 3\n")
        assert commands.read_text().splitlines()[1:] == [
            "scontrol -o show node gpu01",
            "scontrol update nodename=gpu01 state=drain reason=deepopsctl: prolog 10-a.required ended with status 3",
        ]

    def test_one_that_takes_too_long_is_ended_and_named(self, tmp_path: Path) -> None:
        path = self.prolog(tmp_path)
        path.write_text(path.read_text().replace("--kill-after=5 60 ", "--kill-after=1 0.2 "))
        program(tmp_path / "prolog.d" / "10-slow", "#!/bin/sh\nexec sleep 60\n")

        assert run(path).stdout == "prolog 10-slow took longer than 60 s\n"

    def test_a_sites_own_program_goes_on_being_called_and_heeded(self, tmp_path: Path) -> None:
        site = program(tmp_path / "site", "#!/bin/sh\necho site\nexit 4\n")
        for kind, output in (("prolog", "ours\nsite\n"), ("epilog", "site\nours\n")):
            program(tmp_path / f"{kind}.d" / "10-a", "#!/bin/sh\necho ours\n")

            done = run(self.prolog(tmp_path, kind, **{kind: str(site)}))

            assert (done.returncode, done.stdout) == (4, output)

    def test_a_sites_pattern_runs_what_matches_and_nothing_where_nothing_does(self, tmp_path: Path) -> None:
        (tmp_path / "site.d").mkdir()
        pattern = str(tmp_path / "site.d" / "*")
        for kind in ("prolog", "epilog"):
            assert run(self.prolog(tmp_path, kind, **{kind: pattern})).returncode == 0
        text = render("node_common", "task_prolog.j2", node_common_job_programs={"task_prolog": pattern})
        task_prolog = program(tmp_path / "task_prolog", text)
        assert (run(task_prolog).returncode, run(task_prolog).stdout) == (0, "")

        for name in ("10-a", "20-b"):
            program(tmp_path / "site.d" / name, f"#!/bin/sh\necho {name}\n")

        assert run(self.prolog(tmp_path, prolog=pattern)).stdout == "10-a\n20-b\n"
        assert run(task_prolog).stdout == "10-a\n20-b\n"

    def test_before_a_task_the_output_of_all_reaches_slurm(self, tmp_path: Path) -> None:
        site = program(tmp_path / "site", "#!/bin/sh\necho export B=2\n")
        text = render("node_common", "task_prolog.j2", node_common_job_programs={"task_prolog": str(site)})
        path = program(tmp_path / "task_prolog", text.replace("/usr/bin/logger", "true"))
        program(tmp_path / "task_prolog.d" / "10-a", "#!/bin/sh\necho export A=1\n")
        program(tmp_path / "task_prolog.d" / "20-b", "#!/bin/sh\nexit 1\n")

        done = run(path)

        assert (done.returncode, done.stdout) == (0, "export A=1\nexport B=2\n")

    @pytest.mark.parametrize("kind", ["prolog", "epilog", "task_prolog"])
    def test_a_link_back_to_it_is_refused_and_ends_where_it_is_made_later(self, tmp_path: Path, kind: str) -> None:
        link, script = tmp_path / "site" / "link", tmp_path / "site" / "script"
        program(script, "#!/bin/sh\nexec $0.link\n").with_name("script.link").symlink_to(tmp_path / "own" / kind)
        program(tmp_path / "own" / f"{kind}.d" / "10-a", "#!/bin/sh\necho ours\n")
        for site in (link, script):
            name = "task_prolog.j2" if kind == "task_prolog" else "pieces.j2"
            text = render("node_common", name, kind=kind, node_common_job_programs={kind: f"{site}*"})
            path = program(tmp_path / "own" / kind, text.replace("/usr/bin/logger", "true"))
            before = run(path, "--check")
            link.symlink_to(path)
            refused, called = run(path, "--check"), run(path)
            link.unlink()

            assert before.returncode == (1 if site == script else 0)
            assert (refused.returncode, "deepopsctl's own programs" in refused.stdout) == (1, True)
            assert (called.returncode, called.stdout.count("ours")) == (0, 1)

    @pytest.mark.parametrize("kind", ["prolog", "epilog"])
    def test_a_deploys_question_starts_no_piece(self, tmp_path: Path, kind: str) -> None:
        program(tmp_path / f"{kind}.d" / "10-a", "#!/bin/sh\necho ours\n")

        assert run(self.prolog(tmp_path, kind), "--check").stdout == ""


@pytest.mark.parametrize(
    ("request_of_node", "size"),
    [
        ("gres/gpu:1,gres/tmpdisk:200G", 200 << 30),
        ("gres/tmpdisk:200g", 200 << 30),
        ("gres:tmpdisk=5", 5),
        ("gres/tmpdisk:0", 10 << 30),
        ("N/A", 10 << 30),
    ],
)
def test_a_job_has_the_space_that_slurm_has_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_of_node: str, size: int
) -> None:
    values = {"directory": str(tmp_path), "method": "prolog", "share": "10G"}
    path = program(tmp_path / "job-directories", render_with(values, "job-directories.j2"))
    program(tmp_path / "bin" / "squeue", f"#!/bin/sh\necho {request_of_node}\n")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")

    assert runpy.run_path(str(path))["asked_for"](JOB) == size


def test_shellcheck_finds_nothing(tmp_path: Path) -> None:
    # the pinned one, whatever is in the path; dash and bash have -O
    words = [str(Path(sys.executable).with_name("shellcheck")), "--exclude=SC3067"]
    for path in (of_task(tmp_path, "prolog"), of_task(tmp_path, "namespace"), TestPieces.prolog(tmp_path)):
        done = subprocess.run([*words, path], capture_output=True, text=True)
        assert done.stdout == ""


@pytest.mark.parametrize(
    ("address", "is_one"),
    [
        ("alice", True),
        ("alice+jobs@lab.example.com,bob@example.com", True),
        ("|touch${IFS}/tmp/x", False),
        ("alice,|id", False),
        ("/var/lib/slurm/slurmctld/job_state", False),
        ("alice,/tmp/x", False),
        ("+folder", False),
        ("alice,+folder", False),
        ("-oQ/tmp", False),
        ("a\nb", False),
        ("", False),
    ],
)
def test_a_mailer_gets_addresses_alone_and_no_command_or_file(tmp_path: Path, address: str, is_one: bool) -> None:
    got = tmp_path / "got"
    mailer = program(tmp_path / "mail", f'#!/bin/sh\nprintf "%s\\n" "$@" >{got}\n')
    text = (ROOT / "roles/slurmctld/templates/mail.j2").read_text(encoding="utf-8")
    # this machine's own mailers and log are not asked
    for name in ("/usr/local/sbin/deepops-job-mail", "/usr/bin/mailx"):
        text = text.replace(name, "/nowhere")
    text = text.replace("/usr/bin/mail ", f"{mailer} ").replace("exec logger", "exec true")

    run(program(tmp_path / "mailprog", text), "-s", "Job_id=1 Name=x", address)

    assert (got.read_text().splitlines() if got.exists() else []) == (
        ["-s", "Job_id=1 Name=x", address] if is_one else []
    )


def test_a_users_process_is_not_asked_for_its_name(tmp_path: Path) -> None:
    """It lies in its memory, maybe in a file whose server never answers: here, a pipe without a writer."""
    path = program(
        tmp_path / "job-directories",
        render_with({"directory": str(tmp_path), "method": "prolog"}, "job-directories.j2"),
    )
    process = tmp_path / "4711"
    process.mkdir()
    (process / "status").write_text(f"Name:\tx\nUid:\t{os.getuid() + 1}\t0\t0\t0\n")
    os.mkfifo(process / "cmdline")

    assert runpy.run_path(str(path))["job_of"](str(process)) == []
