from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from deepopsctl.errors import InputError
from deepopsctl.ssh.passwords import AskPass, read_password

SECRET = r"it's a \backslash $HOME `id` ü"


@pytest.fixture
def askpass(tmp_path: Path) -> Iterator[AskPass]:
    with AskPass(tmp_path) as made:
        yield made


def answer(environment: Mapping[str, str], prompt: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [environment["SSH_ASKPASS"], prompt],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize(
    "prompt",
    ["ubuntu@gpu01's password: ", "(ubuntu@gpu01) Password: ", "(ubuntu@gpu01) LDAP Password:", "Password: "],
)
def test_gives_the_password_to_the_login_it_was_made_for(askpass: AskPass, prompt: str) -> None:
    with askpass.answer(SECRET, "ubuntu", "gpu01") as environment:
        assert answer(environment, prompt).stdout == SECRET + "\n"


@pytest.mark.parametrize(
    "prompt",
    [
        "ubuntu@bastion's password: ",
        "(ubuntu@bastion) Password: ",
        "(ubuntu@gpu01) Verification code: ",
        "Enter passphrase for key '/home/ada/.ssh/id_ed25519': ",
        "Are you sure you want to continue connecting (yes/no/[fingerprint])? ",
        "Enter ubuntu@gpu01's new password: ",
        "",
    ],
)
def test_keeps_the_password_from_every_other_question(askpass: AskPass, prompt: str) -> None:
    with askpass.answer(SECRET, "ubuntu", "gpu01") as environment:
        asked = answer(environment, prompt)
    assert (asked.returncode, asked.stdout) == (1, "")


def test_answers_only_once(askpass: AskPass) -> None:
    with askpass.answer(SECRET, "ubuntu", "gpu01") as environment:
        answer(environment, "ubuntu@gpu01's password: ")
        again = answer(environment, "ubuntu@gpu01's password: ")
    # at once: it does not wait for one that is not written
    assert (again.returncode, again.stdout) == (1, "")


def test_the_password_is_neither_in_the_environment_nor_in_a_file(askpass: AskPass) -> None:
    with askpass.answer(SECRET, "ubuntu", "gpu01") as environment:
        assert SECRET not in str(environment)
        files = [path for path in askpass.directory.rglob("*") if path.is_file()]
        assert all(SECRET.encode() not in path.read_bytes() for path in files)
        pipe = Path(environment["DEEPOPSCTL_ASKPASS_PIPE"])
        assert stat.S_ISFIFO(pipe.stat().st_mode)
        assert stat.S_IMODE(askpass.directory.stat().st_mode) == 0o700


def test_leaves_nothing_behind(tmp_path: Path) -> None:
    with AskPass(tmp_path) as askpass, askpass.answer(SECRET, "ubuntu", "gpu01"):
        pass
    assert not askpass.directory.exists()


def test_long_names_are_cut_as_ssh_cuts_them(askpass: AskPass) -> None:
    with askpass.answer(SECRET, "u" * 40, "h" * 200) as environment:
        assert answer(environment, f"{'u' * 30}@{'h' * 128}'s password: ").returncode == 0


def test_a_helper_whose_writer_was_killed_gives_up(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    with AskPass(tmp_path) as askpass, askpass.answer(SECRET, "ubuntu", "gpu01") as environment:
        asked = answer({**environment, "DEEPOPSCTL_ASKPASS_PIPE": str(pipe)}, "ubuntu@gpu01's password: ")

    assert asked.returncode != 0
    assert asked.stdout == ""


def password_file(directory: Path, text: str, mode: int = 0o600) -> Path:
    file = directory / "password"
    file.write_text(text)
    file.chmod(mode)
    return file


def test_reads_the_first_line_of_a_password_file(tmp_path: Path) -> None:
    assert read_password(password_file(tmp_path, " with blanks and ü \r\nsecond line\n")) == " with blanks and ü "


@pytest.mark.parametrize("text", ["", "\n", "\nsecond line\n"])
def test_refuses_a_password_file_without_a_password(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="no password"):
        read_password(password_file(tmp_path, text))


def test_refuses_a_password_file_that_others_can_read(tmp_path: Path) -> None:
    file = password_file(tmp_path, "secret\n", 0o640)
    with pytest.raises(InputError) as caught:
        read_password(file)
    assert caught.value.hint == f"chmod 600 {file}"


def test_takes_a_password_from_a_pipe(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"secret\n")
    os.close(writing)
    assert read_password(Path(f"/dev/fd/{reading}")) == "secret"
    os.close(reading)
