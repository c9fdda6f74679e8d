"""Environments on a node: who uses one, what may enter the wheelhouse, and whose files they are."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from hashlib import sha256
from pathlib import Path

import pytest

from deepopsctl.node_programs.operations.environments import build, main, use, wheelhouse

SLEEPS = "import sys, time; print(flush=True); time.sleep(60)"
VERSION = {"name": "dl", "version": "2026.12"}


@pytest.mark.parametrize("by", ["environment", "directory"])
def test_a_process_that_uses_an_environment_is_named(tmp_path: Path, by: str) -> None:
    place = tmp_path / "dl" / "2026.12"
    place.mkdir(parents=True)
    env = {"PATH": f"{place}/bin:/usr/bin"} if by == "environment" else {}
    directory = place if by == "directory" else tmp_path
    process = subprocess.Popen([sys.executable, "-c", SLEEPS], env=env, cwd=directory, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()

        assert use.users_of([str(place)]) == [f"{place}: process {process.pid} of {user}"]
        # 2026.1 is another one than 2026.12
        assert use.users_of([str(place)[:-1]]) == []
    finally:
        process.kill()
        process.communicate()
    assert use.users_of([str(place)]) == []


@pytest.mark.parametrize("packed", [False, True], ids=["file", "archive"])
def test_a_wheel_with_another_hash_does_not_enter_the_wheelhouse(tmp_path: Path, packed: bool) -> None:
    arrived, archive, target = tmp_path / "a-1-py3-none-any.whl", tmp_path / "wheels.tar", tmp_path / "wheels"
    arrived.write_bytes(b"x")
    with tarfile.open(archive, "w") as tar:
        tar.add(arrived, arrived.name)

    def store(digest: str) -> None:
        if packed:
            wheelhouse.store(str(target), {}, {str(archive): {arrived.name: digest}})
        else:
            wheelhouse.store(str(target), {str(arrived): digest}, {})

    with pytest.raises(build.BuildError, match="another hash"):
        store("0" * 64)
    assert list(target.iterdir()) == []
    store(sha256(b"x").hexdigest())
    assert [(path.name, path.read_bytes()) for path in target.iterdir()] == [(arrived.name, b"x")]


def test_what_users_see_of_a_version_goes_first_and_comes_back(tmp_path: Path) -> None:
    module = tmp_path / "modulefiles" / "dl" / "2026.12"
    (tmp_path / "dl" / "2026.12").mkdir(parents=True)
    module.parent.mkdir(parents=True)
    module.write_text("x", encoding="utf-8")
    request = {"directory": str(tmp_path), "versions": [VERSION], "check_mode": False}

    main.main({**request, "phase": "hide", "shown": False})
    assert not module.exists()
    main.main({**request, "phase": "hide", "shown": True})
    assert module.exists()
    main.main({**request, "phase": "hide", "shown": False})
    assert main.main({**request, "phase": "remove"}) == {"changed": True}
    assert [path for path in tmp_path.rglob("*") if not path.is_dir()] == []
    assert main.main({**request, "phase": "remove"}) == {"changed": False}


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to root")
def test_users_write_nothing_of_an_environment(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "tool"
    program.parent.mkdir()
    program.write_text("x", encoding="utf-8")
    program.chmod(0o6777)
    os.chown(program, 1000, 1000)
    (tmp_path / "lib").symlink_to("/etc/shadow")
    shadow = Path("/etc/shadow").stat()

    build._protect(str(tmp_path))

    state = program.stat()
    assert (state.st_mode & 0o7777, state.st_uid, state.st_gid) == (0o755, 0, 0)
    assert Path("/etc/shadow").stat() == shadow


@pytest.mark.parametrize(
    ("place", "file"), [("nvidia/nccl/lib", "libnccl.so.2"), ("libnccl/lib64", "libnccl.so")], ids=["nvidia", "rapids"]
)
def test_other_software_is_built_against_the_libraries_of_wheels(tmp_path: Path, place: str, file: str) -> None:
    """The layout of NVIDIA's wheels, whose libraries have the name with a number only, and that of RAPIDS."""
    parts = (tmp_path / "lib" / "python3.13" / "site-packages" / place).parent
    for name in ("include", Path(place).name):
        (parts / name).mkdir(parents=True)
        (parts / name / "__init__.py").touch()
    (parts / "include" / "nccl.h").write_text("int version(void);\n", encoding="utf-8")
    (tmp_path / "own.c").write_text("int version(void) { return 7; }\n", encoding="utf-8")
    (tmp_path / "user.c").write_text("#include <nccl.h>\nint main(void) { return version(); }\n", encoding="utf-8")
    library = parts / Path(place).name / file
    compiler = ["gcc", "-shared", f"-Wl,-soname,{file}", "-o", str(library), str(tmp_path / "own.c")]
    subprocess.run(compiler, check=True)

    build._link_libraries(str(tmp_path))

    env = {**os.environ, "CPATH": f"{tmp_path}/include", "LIBRARY_PATH": f"{tmp_path}/lib"}
    subprocess.run(["gcc", "-o", tmp_path / "user", tmp_path / "user.c", "-lnccl"], env=env, check=True)
    assert subprocess.run([tmp_path / "user"], env={"LD_LIBRARY_PATH": f"{tmp_path}/lib"}).returncode == 7
    assert not (tmp_path / "include" / "__init__.py").exists()


def test_an_environment_without_libraries_is_refused_as_one_to_build_against(tmp_path: Path) -> None:
    (tmp_path / "lib" / "python3.13" / "site-packages").mkdir(parents=True)

    with pytest.raises(build.BuildError, match="leave out `libraries: true`"):
        build._link_libraries(str(tmp_path))


def test_a_version_that_gets_libraries_is_built_again(tmp_path: Path) -> None:
    version = {**VERSION, "python": "3.13", "wheels": {}}
    made = Path(build.place(str(tmp_path), version))
    made.mkdir(parents=True)
    build._write_record(str(made), version)

    assert build.absent(str(tmp_path), [version]) == []
    assert build.absent(str(tmp_path), [{**version, "libraries": True}]) != []
