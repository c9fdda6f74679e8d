"""What users and administrators have of storage on real nodes: the report of what they use, the purge of scratch.

A lab has neither NFS nor quotas: what nodes share is a directory, and the report has it from df.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.harness import LabCluster, changes, edit
from tests.support.cluster import wait_until

STORAGE = """
storage:
  - name: scratch
    type: local
    source: /srv/shared
    path: /scratch
    local: {shared: true}
"""
PURGE = '    purge: {age: 7d, mode: delete, warn: "0", exclude: [kept]}\n'
# with a notice as long as the age users are notified of a file of today
TELLING = "    purge: {age: 7d, mode: delete, warn: 7d, mail: local}\n"
# eight days are too long to wait for
LATER = (
    "import sys, time; real = time.time; time.time = lambda: real() + 8 * 86400; "
    "sys.path.insert(0, '/usr/local/lib/deepopsctl/scratch_purge'); "
    "from node_programs.services.scratch_purge.cli import main; "
    "sys.exit(main(['scratch', *sys.argv[1:]]))"
)


@pytest.fixture(scope="module")
def deploys(battered: LabCluster) -> Iterator[dict[str, dict[str, Any]]]:
    """The changes that plan listed, those of the first deploy, and of a second one; all is removed at the end."""
    spec = battered.directory / "cluster.yml"
    before = spec.read_text(encoding="utf-8")
    # whatever tests before this left
    spec.write_text(before + "storage: []\n", encoding="utf-8")
    battered.parsed("deploy", "storage")
    spec.write_text(before + STORAGE + PURGE, encoding="utf-8")
    yield battered.plan_and_deploy_twice("storage")
    spec.write_text(before + "storage: []\n", encoding="utf-8")
    battered.parsed("deploy", "storage")
    spec.write_text(before, encoding="utf-8")


@pytest.fixture(scope="module")
def cluster(battered: LabCluster, deploys: dict[str, dict[str, Any]]) -> LabCluster:
    """The same with its storage."""
    return battered


def test_a_plan_tells_it_beforehand_and_a_second_deploy_changes_nothing(deploys: dict[str, dict[str, Any]]) -> None:
    assert changes(deploys["first"]) == changes(deploys["plan"])
    assert ("ctl1", "unit", "deepops-purge-scratch.timer", "start") in changes(deploys["plan"])
    assert deploys["second"]["changes"] == []


def test_users_see_what_there_is_on_every_node(cluster: LabCluster) -> None:
    for name in ("ctl1", "gpu01"):
        report = json.loads(cluster.user(name, "diskusage_report --json"))
        shown = cluster.user(name, "diskusage_report")

        assert [(row["path"], row["kind"], row["problem"]) for row in report["rows"]] == [("/scratch", "whole", "")]
        assert report["rows"][0]["usage"]["space"]["used"] > 0
        assert "/scratch (all users)" in shown


def test_one_node_purges_and_every_night(cluster: LabCluster) -> None:
    timers = {
        name: cluster.root(name, "systemctl list-timers --all").count("deepops-purge") for name in ("ctl1", "gpu01")
    }

    assert (timers["ctl1"] > 0, timers["gpu01"]) == (True, 0)
    cluster.root("ctl1", "systemctl start deepops-purge-scratch.service")
    assert "not used for 7 days" in cluster.root("ctl1", "journalctl --unit=deepops-purge-scratch --output=cat")


def test_what_is_old_goes_on_the_mount_and_what_is_excluded_stays(cluster: LabCluster) -> None:
    cluster.user(
        "gpu01", "mkdir -p /scratch/me/kept; touch /scratch/me/old /scratch/me/kept/old; ln -s /etc /scratch/me/etc"
    )
    program = f'python3 -Bc "{LATER}"'

    listed = cluster.root("ctl1", f"{program} --print0 2>/dev/null | tr '\\0' ' '").split()
    first, done = (json.loads(cluster.root("ctl1", f"{program} --apply --json")) for _ in range(2))

    assert sorted(listed) == ["me/etc", "me/old"]
    # to the first the clock has jumped
    assert (first["deleted"], first["due"]) == (0, 2)
    assert (done["deleted"], done["problems"]) == (2, [])
    assert cluster.user("gpu01", "cd /scratch/me && find . -type f").split() == ["./kept/old"]
    assert cluster.holds("gpu01", "test -e /etc/passwd")


def test_users_are_notified_by_a_list_and_once_by_mail(cluster: LabCluster) -> None:
    """By the units of every night and a real mailer."""
    install = "apt-get -qq update && apt-get -qq install --yes --no-install-recommends dma"
    cluster.root("ctl1", f"export DEBIAN_FRONTEND=noninteractive; {install} >/dev/null 2>&1")
    edit(cluster.directory / "cluster.yml", PURGE, TELLING)
    cluster.parsed("deploy", "storage")
    cluster.user("gpu01", "mkdir -p /scratch/me && touch '/scratch/me/of today'")
    name = cluster.user("gpu01", "id --user --name")
    box = f"/var/mail/{name}"

    for _ in range(2):
        cluster.root("ctl1", "systemctl start deepops-purge-scratch.service")

    assert "me/of today" in cluster.user("gpu01", f"cat /scratch/.to_delete/{name}")
    wait_until("there is a mail", lambda: cluster.holds("ctl1", f"test -s {box}"))
    mail = cluster.root("ctl1", f"cat {box}")
    assert mail.count("of your files in /scratch go from ") == 1, mail
    assert "me/of today" in mail
    journal = cluster.root("ctl1", "journalctl --unit=deepops-purge-scratch --output=cat")
    assert journal.count("will be deleted soon; 1 mails") == 1, journal
    assert journal.count("will be deleted soon; 0 mails") == 1, journal
    assert cluster.holds("gpu01", "test -e '/scratch/me/of today'")
    edit(cluster.directory / "cluster.yml", TELLING, PURGE)


def test_a_mailer_that_delivers_later_is_not_stopped_with_the_purge(cluster: LabCluster) -> None:
    later = "#!/bin/sh\ncat >/run/taken\n(sleep 3; mv /run/taken /run/delivered) </dev/null >/dev/null 2>&1 &\n"
    cluster.root("ctl1", "mv /usr/sbin/sendmail /usr/sbin/sendmail.real; rm -r /var/lib/deepops-purge")
    try:
        cluster.root("ctl1", f"printf '%s' '{later}' >/usr/sbin/sendmail && chmod +x /usr/sbin/sendmail")
        cluster.root("ctl1", "systemctl start deepops-purge-scratch.service")

        wait_until("it is delivered", lambda: cluster.holds("ctl1", "test -s /run/delivered"), 30)
    finally:
        cluster.root("ctl1", "mv /usr/sbin/sendmail.real /usr/sbin/sendmail")


def test_scratch_that_is_not_mounted_is_not_purged(cluster: LabCluster) -> None:
    cluster.root("ctl1", "umount /scratch && mkdir -p /scratch/hidden && touch /scratch/hidden/file")
    try:
        output = cluster.root("ctl1", f'python3 -Bc "{LATER}" --apply 2>&1', ok=False)

        assert "/scratch is not mounted" in output
        (row,) = json.loads(cluster.user("ctl1", "diskusage_report --json", ok=False))["rows"]
        assert row["problem"] == "it is not mounted here"
        assert cluster.holds("ctl1", "test -e /scratch/hidden/file")
    finally:
        cluster.root("ctl1", "rm -r /scratch/hidden; systemctl start scratch.mount")
