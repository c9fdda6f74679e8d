"""A Slurm that was built from source is set aside, put back or removed, and nothing else is."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from deepopsctl.node_programs.operations.source_build import main as source_build
from deepopsctl.node_programs.operations.source_build.main import main
from tests.support.files import write_files, write_program

MINE = (
    "bin/sinfo", "bin/sview", "sbin/slurmd", "lib/slurm/auth_munge.so", "lib/libslurm.so.42", "include/slurm/slurm.h",
    "share/man/man1/sinfo.1", "share/man/man5/slurm.conf.5", "share/man/man5/gres.conf.5", "share/doc/slurm-24/x",
)  # fmt: skip
OTHERS = ("bin/python3.12", "lib/libpmi2.so.0", "lib/libfoo.so", "share/man/man1/foo.1", "share/man/man1/sinfo-foo.1")


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What `make install` leaves, other things next to it, and packages' programs in another directory."""
    local, packaged = tmp_path / "local", tmp_path / "bin"
    write_files(local, {name: f"built {name}" for name in (*MINE, *OTHERS)})
    write_files(packaged, {name: f"packaged {name}" for name in ("sinfo", "slurmd")})
    monkeypatch.setattr(source_build, "PACKAGED", (str(packaged),))
    monkeypatch.setattr(source_build, "UNITS", str(tmp_path / "units"))
    monkeypatch.setattr(source_build, "LINKER", str(tmp_path / "ld.conf"))
    monkeypatch.setattr(source_build, "CONFIG", str(tmp_path / "etc"))
    return local


def phase(name: str, prefix: Path, *, check: bool = False) -> bool:
    return bool(main({"phase": name, "prefix": str(prefix), "daemons": [], "check_mode": check})["changed"])


def files(prefix: Path) -> set[str]:
    return {str(path.relative_to(prefix)) for path in prefix.rglob("*") if path.is_file()}


def test_commands_become_links_to_the_packages_and_the_others_of_slurm_are_kept_aside(prefix: Path) -> None:
    before = files(prefix)
    assert phase("replace", prefix, check=True)
    assert files(prefix) == before

    assert phase("replace", prefix)

    assert (prefix / "bin/sinfo").read_text() == "packaged sinfo"
    assert not (prefix / "bin/sview").exists()
    assert (prefix / "lib/slurm.before-deepopsctl/bin/sview").read_text() == "built bin/sview"
    assert not phase("replace", prefix)


def test_the_way_back_leaves_all_as_it_was(prefix: Path) -> None:
    before = {name: (prefix / name).read_text() for name in files(prefix)}
    phase("replace", prefix)

    source_build.restore_programs(str(prefix))

    assert {name: (prefix / name).read_text() for name in files(prefix)} == before


def test_finish_removes_slurm_and_nothing_else(prefix: Path) -> None:
    with pytest.raises(SystemExit, match="deploy first"):
        phase("finish", prefix)
    phase("replace", prefix)

    assert phase("finish", prefix)

    assert files(prefix) == set(OTHERS)
    assert not phase("finish", prefix)


def test_finish_waits_for_what_was_started_with_it(prefix: Path) -> None:
    phase("replace", prefix)
    program = prefix / "lib/slurm.before-deepopsctl/sbin/slurmstepd"
    shutil.copy("/bin/sleep", program)
    with subprocess.Popen([program, "60"]) as step:
        try:
            with pytest.raises(SystemExit, match="slurmstepd started from"):
                phase("finish", prefix)
        finally:
            step.kill()
    assert program.exists()


def test_there_is_no_way_back_from_a_newer_release(prefix: Path, tmp_path: Path) -> None:
    for path, version in ((prefix / "bin/sinfo", "24.11.5"), (tmp_path / "bin/sinfo", "26.05.5")):
        write_program(path, f"echo slurm {version}")
    phase("replace", prefix)
    before = files(prefix)

    with pytest.raises(SystemExit, match=r"Slurm is 26\.05\.5 by now: 24\.11\.5 can't read its state"):
        phase("undo", prefix)

    assert files(prefix) == before


def test_files_of_before_come_back_and_those_of_deepopsctl_go(tmp_path: Path) -> None:
    own = dict.fromkeys(("slurm.conf", "cgroup.conf"), "# Written by deepopsctl")
    write_files(tmp_path, {**own, "slurm.conf.before-deepopsctl": "old", "site.conf": "mine"})

    assert source_build.restore_files(str(tmp_path))

    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"slurm.conf": "old", "site.conf": "mine"}


def test_a_plugin_that_jobs_load_stays_when_the_rest_is_removed(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = prefix / "lib/slurm/spank_pyxis.so"
    plugin.write_text("built for jobs")
    monkeypatch.setattr(source_build, "loaded_plugins", lambda: {str(plugin)})
    monkeypatch.setattr(source_build, "require", lambda *_words: "")
    phase("replace", prefix)

    assert phase("finish", prefix)

    assert files(prefix) == {*OTHERS, "lib/slurm/spank_pyxis.so"}
    assert not phase("finish", prefix)


def test_undo_puts_back_the_configuration_of_a_slurm_of_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, managed = tmp_path / "etc", "# Written by deepopsctl\n"
    write_files(config, {
        "slurm.conf": managed, "slurm.conf.before-deepopsctl": "theirs",
        "slurmdbd.conf": managed, "slurmdbd.conf.before-deepopsctl": "their database",
        "job_submit.lua": managed, "job_submit.lua.before-deepopsctl": "their script",
        "cgroup.conf": managed, "nodes.conf": "their nodes",
    })  # fmt: skip
    write_files(tmp_path / "records", {"slurm.slurmd.json": "{}", "monitoring.node.json": "{}"})
    for name, path in {"RECORDS": "records", "UNDOING": "takeover-undo", "CONFIG": "etc"}.items():
        monkeypatch.setattr(source_build, name, str(tmp_path / path))
    calls = tmp_path / "calls"
    write_program(
        tmp_path / "fakes" / "systemctl", f'echo "$@" >> {calls}; case "$*" in *is-active*slurmd.*) exit 3;; esac'
    )
    monkeypatch.setenv("PATH", str(tmp_path / "fakes"), prepend=":")
    request = {"phase": "undo", "prefix": "", "daemons": ["slurmctld", "slurmdbd", "slurmd"], "check_mode": False}

    assert main(request)["changed"]

    assert {path.name: path.read_text() for path in config.iterdir()} == {
        "slurm.conf": "theirs", "slurmdbd.conf": "their database", "job_submit.lua": "their script",
        "nodes.conf": "their nodes",
    }  # fmt: skip
    done = calls.read_text().splitlines()
    assert "stop slurmctld.service slurmdbd.service" in done
    assert "start slurmctld.service slurmdbd.service" in done
    assert [path.name for path in (tmp_path / "records").iterdir()] == ["monitoring.node.json"]
    assert not main(request)["changed"]


def test_a_way_back_that_was_cut_off_starts_the_daemons_that_it_stopped(
    prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    phase("replace", prefix)
    write_files(tmp_path / "units", {"slurmctld.service.before-deepopsctl": "theirs"})
    monkeypatch.setattr(source_build, "RECORDS", str(tmp_path / "records"))
    monkeypatch.setattr(source_build, "UNDOING", str(tmp_path / "takeover-undo"))
    monkeypatch.setattr(source_build, "refuse_other_release", lambda _prefix: None)
    calls = tmp_path / "calls"
    # active until it is stopped; no restart works
    script = f"""echo "$@" >> {calls}
case "$*" in
    *is-active*) ! grep -q ^stop {calls} ;;
    restart*) exit 1 ;;
esac"""
    write_program(tmp_path / "fakes" / "systemctl", script)
    monkeypatch.setenv("PATH", str(tmp_path / "fakes"), prepend=":")
    request = {"phase": "undo", "prefix": str(prefix), "daemons": ["slurmctld"], "check_mode": False}

    with pytest.raises(SystemExit, match="systemctl restart"):
        main(request)
    calls.write_text("stop")
    main(request)

    assert "start slurmctld.service" in calls.read_text().splitlines()
    assert (tmp_path / "units/slurmctld.service").read_text() == "theirs"
    assert not main(request)["changed"]
