"""The scripts that run on nodes, run here: by the real shells, in a home directory of their own."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deepopsctl.ssh.remote_scripts import Report, Script, controller_script, work_script
from tests.support.files import write_program

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHuKFJrFKlSN1oTvwmMQw0JpOPrYQo3qzbSgVhRTMEeP deepopsctl cluster hpc"
OTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG/BNj5ceSxHv164NueTzX2aUqibHeHV/fZb49d3+0Ib ada@laptop"

SHELLS = [shell for shell in ("sh", "bash", "dash", "csh", "tcsh", "zsh", "fish", "ksh") if shutil.which(shell)]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir(mode=0o700)
    return made


def end(script: Script, home: Path, shell: str = "sh", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [shell, "-c", script.command],
        input=script.data,
        env={"HOME": str(home), "PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


def run(script: Script, home: Path, shell: str = "sh", **environment: str) -> Report:
    done = end(script, home, shell, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return Report.read(done.stdout)


def authorized(home: Path) -> list[str]:
    return (home / ".ssh" / "authorized_keys").read_text().splitlines()


@pytest.mark.parametrize("shell", SHELLS)
def test_installs_a_key_whatever_the_login_shell(home: Path, shell: str) -> None:
    report = run(work_script([KEY]), home, shell)
    assert authorized(home) == [KEY]
    assert "key" in report.all("changed")


def test_modes_are_what_sshd_asks_for(home: Path) -> None:
    directory = home / ".ssh"
    directory.mkdir(mode=0o755)
    (directory / "authorized_keys").write_text("")
    (directory / "authorized_keys").chmod(0o664)
    assert "mode" in run(work_script([KEY]), home).all("changed")
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / "authorized_keys").stat().st_mode) == 0o600


def test_respects_what_is_in_authorized_keys(home: Path) -> None:
    (home / ".ssh").mkdir()
    # no line end, options before the key, a key that is commented out
    before = f'# {KEY}\n\nfrom="192.0.2.0/24" {OTHER}'
    (home / ".ssh" / "authorized_keys").write_text(before)
    run(work_script([KEY, OTHER]), home)
    assert authorized(home) == [*before.splitlines(), KEY]


def test_nodes_with_one_home_directory_install_a_key_once(home: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: run(work_script([KEY, OTHER]), home), range(8)))
    assert sorted(authorized(home)) == sorted([KEY, OTHER])
    assert [path.name for path in (home / ".ssh").iterdir()] == ["authorized_keys"]


def test_a_lock_left_by_a_killed_run_does_not_stop_the_next(home: Path) -> None:
    (home / ".ssh" / "deepopsctl.lock").mkdir(parents=True)
    # four seconds are many pauses
    (home / "bin").mkdir()
    (home / "bin" / "sleep").symlink_to("/bin/true")
    run(work_script([KEY]), home, PATH=f"{home / 'bin'}:{os.environ['PATH']}")
    assert authorized(home) == [KEY]
    assert not (home / ".ssh" / "deepopsctl.lock").exists()


def test_the_controllers_key_pair_is_made_once_authorised_there_and_its_public_half_restored(home: Path) -> None:
    script = work_script([KEY], "deepopsctl-hpc", "ubuntu@ctl1")
    first, second = run(script, home), run(script, home)
    assert first.last("public").endswith(" ubuntu@ctl1")
    assert second.last("public") == first.last("public")
    assert second.all("changed") == ()
    assert authorized(home) == [first.last("public"), KEY]
    assert stat.S_IMODE((home / ".ssh" / "deepopsctl-hpc").stat().st_mode) == 0o600
    (home / ".ssh" / "deepopsctl-hpc.pub").unlink()
    assert run(script, home).last("public").split()[2] == first.last("public").split()[2]
    assert len(authorized(home)) == 2


def test_the_controllers_key_opens_nodes_from_its_own_addresses_only(home: Path) -> None:
    script = work_script([], "deepopsctl-hpc", "ubuntu@ctl1")
    public = run(script, home, SSH_CONNECTION="9.9.9.9 1 192.0.2.7 22").last("public")

    assert re.fullmatch(r'from="([0-9a-f.:]+,)+[0-9a-f.:]+" ssh-ed25519 \S+ ubuntu@ctl1', public)
    assert {"127.0.0.1", "192.0.2.7"} <= set(public.split('"')[1].split(","))
    assert authorized(home) == [public]


@pytest.mark.parametrize("before", ["", 'from="192.0.2.1" '])
def test_a_key_that_was_authorised_for_other_addresses_is_bound_to_the_new_ones(home: Path, before: str) -> None:
    run(work_script([KEY, f"{OTHER}"]), home)
    path = home / ".ssh" / "authorized_keys"
    path.write_text(f"# mine\n{before}{KEY}\n{OTHER}\n{before}{KEY}\n")
    bound = f'from="192.0.2.7,192.0.2.8" {KEY}'

    assert run(work_script([bound, OTHER]), home).all("changed")
    assert authorized(home) == ["# mine", bound, OTHER]
    assert run(work_script([bound, OTHER]), home).all("changed") == ()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_options_that_a_person_gave_the_controllers_key_stay(home: Path) -> None:
    run(work_script([KEY]), home)
    mine = f'no-pty,from="192.0.2.9" {KEY}'
    (home / ".ssh" / "authorized_keys").write_text(f"{mine}\n")

    assert run(work_script([f'from="192.0.2.7" {KEY}']), home).all("changed") == ()
    assert authorized(home) == [mine]


def test_a_missing_home_directory_is_named(tmp_path: Path) -> None:
    done = end(work_script([KEY]), tmp_path / "gone")
    assert done.returncode == 3
    assert Report.read(done.stdout).last("error") == f"the home directory {tmp_path}/gone is missing"


def test_the_controller_gets_its_files_and_an_include_on_top(home: Path) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh" / "config").write_text("Host *\n    User ada\n")
    script = controller_script("deepopsctl-hpc", "Host gpu01\n", "gpu01 ssh-ed25519 AAAA\n", [])
    report = run(script, home)
    assert (home / ".ssh" / "config").read_text() == "Include deepopsctl-hpc.config\nHost *\n    User ada\n"
    assert (home / ".ssh" / "deepopsctl-hpc.config").read_text() == "Host gpu01\n"
    assert (home / ".ssh" / "deepopsctl-hpc.known_hosts").read_text() == "gpu01 ssh-ed25519 AAAA\n"
    assert report.all("changed")
    assert run(script, home).all("changed") == ()


def test_a_linked_ssh_config_stays_a_link(home: Path) -> None:
    (home / ".ssh").mkdir()
    (home / "dotfiles").write_text("Host *\n")
    (home / ".ssh" / "config").symlink_to(home / "dotfiles")
    run(controller_script("deepopsctl-hpc", "Host gpu01\n", "", []), home)
    assert (home / ".ssh" / "config").is_symlink()
    assert (home / "dotfiles").read_text() == "Include deepopsctl-hpc.config\nHost *\n"


@pytest.mark.parametrize(
    "old", ["", 'case "$*" in *KexAlgorithms=^*) echo "Bad SSH2 KexAlgorithms"; exit 255 ;; esac; ']
)
def test_names_that_cannot_be_reached_are_reported_with_the_reason(home: Path, old: str) -> None:
    (home / ".ssh").mkdir()
    config = "Host gone\n    HostName 127.0.0.1\n    Port 1\n"
    # ssh takes the home directory from the user database: it is told where to look
    wrapper = f'{old}exec {shutil.which("ssh")} -F "$HOME/.ssh/deepopsctl-hpc.config" "$@"'
    directory = write_program(home / "bin" / "ssh", wrapper).parent
    script = controller_script("deepopsctl-hpc", config, "", ["gone"])
    done = end(script, home, PATH=f"{directory}:{os.environ['PATH']}")
    assert Report.read(done.stdout).last("missed") == "gone ssh: connect to host 127.0.0.1 port 1: Connection refused"


def test_a_report_is_found_among_other_output() -> None:
    report = Report.read("Welcome!\n@deepopsctl host gpu01\nLast login\n@deepopsctl changed key\n")
    assert report.lines == (("host", "gpu01"), ("changed", "key"))
    assert report.without("host").lines == (("changed", "key"),)
    assert report.last("absent") == ""
