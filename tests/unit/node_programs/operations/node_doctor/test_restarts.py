"""What restarts daemons under jobs: commands in files of /etc, and what apt is configured to."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from deepopsctl.node_programs._shared import packages_query
from deepopsctl.node_programs.operations.node_doctor import restarts
from tests.support.role_templates import render


@pytest.mark.parametrize(
    "line",
    [
        'DPkg::Post-Invoke {"systemctl try-restart munge.service || true";};',
        "        systemctl restart slurmd",
        "    /usr/sbin/service munge restart > /dev/null",
        "    invoke-rc.d --quiet munge try-restart",
        "    killall slurmctld",
        "ExecStart=/usr/bin/systemctl stop slurmd.service",
        "needrestart -q -r a",
        "5 4 * * * root apt-get -y dist-upgrade",
    ],
)
def test_a_command_that_restarts_a_daemon_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    others = """
        pkill -x --signal SIGUSR2 slurmctld
        killall -HUP slurmd
        systemctl reload mariadb || true
        systemctl restart rsyslog
# systemctl restart slurmd
ExecStart=/usr/sbin/slurmd --systemd
APT::Periodic::Unattended-Upgrade "1";
apt-get update
"""
    (tmp_path / "file").write_text(f"# nothing\n{others}{line}\n")
    monkeypatch.setattr(restarts, "PLACES", (f"{tmp_path}/*",))

    (sentence,) = restarts._written()

    assert sentence.startswith(f"{tmp_path}/file has `")
    # and none of the others
    assert sentence.split("`")[1] in line


def test_apts_settings_are_read_with_their_lists() -> None:
    dump = 'A "";\nA::B "1";\nA::B "2";\nA::List "";\nA::List:: "^munge$";\nA::List:: "^slurm.*";\n'

    assert packages_query.settings_in(dump) == {"A::B": ["1", "2"], "A::List": ["^munge$", "^slurm.*"]}


@pytest.mark.skipif(not shutil.which("apt-config"), reason="no apt here")
def test_the_exclusions_that_a_deploy_writes_have_every_package_that_matters(tmp_path: Path) -> None:
    text = render("node_common", "unattended-upgrades.j2", ansible_managed="x")
    (tmp_path / "file").write_text(text)

    done = subprocess.run(
        ["apt-config", "-c", str(tmp_path / "file"), "dump"], check=True, capture_output=True, text=True
    )
    patterns = packages_query.settings_in(done.stdout)["Unattended-Upgrade::Package-Blacklist"]

    def is_excluded(name: str) -> bool:
        return any(restarts._matches(pattern, name) for pattern in patterns)

    guarded = [
        *restarts.EXCLUDED, "slurm-wlm-basic-plugins", "libslurm42t64", "libmunge2", "libmariadb3", "libcuda1",
        "libnvidia-compute-580",
        "linux-image-generic", "linux-modules-nvidia-580-server-generic", "beegfs-client", "lustre-client-modules-dkms",
        "nvidia-fabricmanager-580", "nfs-common", "ceph-common", "mlnx-ofed-kernel-dkms",
    ]  # fmt: skip
    assert [name for name in guarded if not is_excluded(name)] == []
    others = ["libc6", "openssl", "openssh-server", "systemd", "python3.13", "linux-libc-dev"]
    assert [name for name in others if is_excluded(name)] == []


@pytest.mark.skipif(not shutil.which("perl"), reason="no perl here")
def test_needrestart_leaves_the_daemons_of_jobs_alone_and_restarts_others(tmp_path: Path) -> None:
    (tmp_path / "deepopsctl.conf").write_text(render("node_common", "needrestart.conf.j2", ansible_managed="x"))
    program = restarts._ASK.replace("/etc/needrestart/conf.d", str(tmp_path)).replace("/etc/needrestart/", "/nowhere/")
    units = [
        *restarts.UNITS, "slurmrestd.service", "slurmstepd.scope", "nvidia-persistenced.service",
        "beegfs-client.service",
        "munge@other.service", "deepops-slurm-guard.service", "autofs.service", "rpc-statd.service",
    ]  # fmt: skip

    done = subprocess.run(
        ["perl", "-e", program, *units, "cron.service", "ssh.service"], check=True, capture_output=True, text=True
    )

    assert done.stdout.split() == ["cron.service", "ssh.service"]
