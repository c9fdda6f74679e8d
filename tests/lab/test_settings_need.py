"""What changed settings need on nodes is looked at first: programs, plugins, memory, one id of Slurm's user."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.harness import SETTINGS, SLURM_CONFIG, LabCluster, edit

# a busy machine is ten times slower
pytestmark = pytest.mark.timeout(3600)
OTHER_USER = "groupadd -g 994 slurm && useradd -u 994 -g 994 -M -s /usr/sbin/nologin slurm"
THE_WAY_OUT = "usermod --uid 64030 slurm && groupmod --gid 64030 slurm"
WRONG_ID = "the user slurm has the id 994 here, and 64030 in the cluster"
PROLOG = "/opt/site/prolog"
MISSING = f"gpu[01-02]: Prolog={PROLOG} is not there"
MARK = "/run/site-prolog-ran"


def plan(cluster: LabCluster) -> dict[str, Any]:
    """A plan that is blocked."""
    done = cluster.deepopsctl("plan", "slurm", "--json", ok=False)
    assert done.returncode == 1, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def failed_checks(cluster: LabCluster) -> dict[tuple[str, str], str]:
    """What the doctor fails."""
    checks = json.loads(cluster.deepopsctl("doctor", "--json", ok=False).stdout)["checks"]
    return {(check["name"], check["target"]): check["message"] for check in checks if check["status"] == "fail"}


def test_nodes_that_could_not_serve_are_refused_before_anything_is_installed(bare: LabCluster) -> None:
    # no lab has an Ubuntu 26.04: the table says that this Ansible ends before the nodes' Python
    pythons = (
        "-e",
        '{"deepops_target_pythons": {"2.19": ["3.9", "3.10"], "2.20": ["3.9", "3.10"], "2.21": ["3.9", "3.10"]}}',
    )
    refused = bare.deepopsctl("deploy", "slurm", *pythons, ok=False)
    assert refused.returncode == 1
    assert "is too new here: ansible-core 2." in refused.stderr
    assert "ansible_python_interpreter" in refused.stderr

    # cloud-init as its user data has it; and a node that only its name leads to, which is its own alone there
    bare.root("gpu01", "install -m 0755 /bin/true /usr/bin/cloud-init; mkdir -p /var/lib/cloud/instance")
    bare.root("gpu01", "echo 'manage_etc_hosts: true' > /var/lib/cloud/instance/cloud-config.txt")
    refused = bare.deepopsctl("deploy", "slurm", "--limit", "gpu01", ok=False)
    assert "cloud-init writes /etc/hosts at every boot" in refused.stderr
    assert "cloud-init" in failed_checks(bare)["hostname", "gpu01"]
    bare.root("gpu01", "rm -r /usr/bin/cloud-init /var/lib/cloud")

    assert not any(
        bare.holds(node, "test -d /etc/munge || test -d /var/lib/deepopsctl/records") for node in ("ctl1", "gpu01")
    )


@pytest.fixture
def settings(deployed: LabCluster) -> Iterator[LabCluster]:
    """Deployed; its cluster directory and its nodes are as before at the end."""
    paths = [deployed.directory / "cluster.yml", deployed.directory / SETTINGS]
    before = [path.read_text(encoding="utf-8") for path in paths]
    yield deployed
    for path, text in zip(paths, before, strict=True):
        path.write_text(text, encoding="utf-8")
    deployed.deploy()
    for node in ("gpu01", "gpu02"):
        deployed.root(node, f"rm -rf /opt/site {MARK}")


def test_a_node_whose_slurm_has_another_id_is_left_as_it_is_and_the_others_serve(to_deploy: LabCluster) -> None:
    to_deploy.root("gpu02", OTHER_USER)

    assert WRONG_ID in plan(to_deploy)["plan"]
    assert "the id 994 here, 64030 in the cluster" in failed_checks(to_deploy)["user-ids", "gpu02"]
    refused = to_deploy.deepopsctl("deploy", "slurm", ok=False)

    assert refused.returncode == 1
    assert WRONG_ID in refused.stderr
    assert "usermod --uid 64030 slurm" in refused.stderr
    assert not to_deploy.holds("gpu02", "command -v slurmd || test -d /etc/munge")
    assert to_deploy.node_state("gpu01") == "idle"

    to_deploy.root("gpu02", THE_WAY_OUT)
    to_deploy.deploy()
    assert to_deploy.node_state("gpu02") == "idle"


def test_a_program_that_nodes_lack_is_refused_before_slurmctld_has_it(settings: LabCluster) -> None:
    before = settings.root("ctl1", "cat /etc/slurm/slurm.conf")
    more = SLURM_CONFIG.replace("}", f", Prolog: {PROLOG}, Epilog: '/opt/site/epilog.d/*'}}")
    edit(settings.directory / SETTINGS, SLURM_CONFIG, more)

    assert plan(settings)["plan"].startswith(f"blocked: {MISSING}")
    assert failed_checks(settings)["slurm-needs", "gpu01"] == f"Prolog={PROLOG} is not there"
    refused = settings.deepopsctl("deploy", ok=False)

    assert refused.returncode == 1
    assert f"{MISSING}; nothing was changed" in refused.stderr
    assert settings.root("ctl1", "cat /etc/slurm/slurm.conf") == before

    # on one of them it is there and can't be run
    for node, mode in (("gpu01", "0755"), ("gpu02", "0644")):
        settings.root(
            node, f"mkdir -p /opt/site; printf '#!/bin/sh\\ntouch {MARK}\\n' > {PROLOG}; chmod {mode} {PROLOG}"
        )
    assert f"gpu02: Prolog={PROLOG} is not executable" in settings.deepopsctl("deploy", ok=False).stderr

    settings.root("gpu02", f"chmod 0755 {PROLOG}")
    settings.deploy()
    job = settings.submit("true", "--nodelist=gpu02", "--mem=100M")
    settings.wait_for_job(job, "COMPLETED")
    assert settings.holds("gpu02", f"test -e {MARK}")
    assert settings.node_state("gpu02") == "idle"


def test_more_than_the_hardware_has_is_refused(settings: LabCluster) -> None:
    edit(settings.directory / "cluster.yml", "roles: [compute],", "roles: [compute], slurm: {RealMemory: 9999999},")
    before = settings.root("ctl1", "cat /etc/slurm/slurm.conf")

    blocked = plan(settings)["plan"]
    refused = settings.deepopsctl("deploy", ok=False)

    for text in (blocked, refused.stderr):
        assert "gpu[01-02]: RealMemory=9999999 is more than the " in text
    assert settings.root("ctl1", "cat /etc/slurm/slurm.conf") == before
    assert settings.node_state("gpu01") == "idle"


def test_a_plugin_that_nodes_lack_is_refused(settings: LabCluster) -> None:
    more = SLURM_CONFIG.replace("}", ", TaskPlugin: 'task/cgroup,task/affinity,task/site', JobSubmitPlugins: nothing}")
    edit(settings.directory / SETTINGS, SLURM_CONFIG, more)

    blocked = plan(settings)["plan"]

    assert "gpu[01-02]: TaskPlugin=task/site: there is no task_site.so in /usr/lib/" in blocked
    assert "ctl1: JobSubmitPlugins=nothing: there is no job_submit_nothing.so" in blocked


def test_a_node_that_lost_a_program_that_is_in_force_stops_no_deploy_of_something_else(settings: LabCluster) -> None:
    for node in ("gpu01", "gpu02"):
        settings.root(node, f"mkdir -p /opt/site; printf '#!/bin/sh\\n' > {PROLOG}; chmod 0755 {PROLOG}")
    edit(settings.directory / SETTINGS, SLURM_CONFIG, SLURM_CONFIG.replace("}", f", Prolog: {PROLOG}}}"))
    settings.deploy()
    settings.root("gpu01", f"rm {PROLOG}")
    edit(settings.directory / SETTINGS, f"Prolog: {PROLOG}", f"Prolog: {PROLOG}, KillWait: 31")

    summary = settings.deploy()

    assert any(f"gpu01: Prolog={PROLOG} is not there" in text for text in summary["warnings"])
    assert "KillWait=31" in settings.root("ctl1", "cat /etc/slurm/slurm.conf")
    assert failed_checks(settings)["slurm-needs", "gpu01"] == f"Prolog={PROLOG} is not there"
