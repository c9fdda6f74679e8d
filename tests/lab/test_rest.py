"""Slurm's REST interface: a token is for its user, and what is refused before Slurm sees it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.harness import PREFIX, SETTINGS, LabCluster, edit, fresh_cluster, wait_until
from tests.lab.test_upgrade import ON, add_new_release

HOST, PORT = "ctl1", 6820
CONFIG = "/etc/deepopsctl/slurm_rest"
VERSION = "v0.0.42"


@pytest.fixture(scope="module")
def site(deployed: LabCluster) -> Iterator[LabCluster]:
    """The cluster with the interface on its controller, and without it again."""
    spec, settings = deployed.directory / "cluster.yml", deployed.directory / SETTINGS
    before, before_settings = spec.read_text(encoding="utf-8"), settings.read_text(encoding="utf-8")
    try:
        edit(spec, "components: [slurm]", "components: [slurm, slurm_rest]")
        edit(settings, "---\n", f"---\nslurm_rest_host: {HOST}\n")
        deployed.deepopsctl("deploy")
        deployed.root(HOST, "apt-get install -y curl")
        yield deployed
    finally:
        settings.write_text(before_settings, encoding="utf-8")
        deployed.deepopsctl("deploy", ok=False)
        spec.write_text(before, encoding="utf-8")


@pytest.fixture
def newer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """One node with Slurm 26.05, from the cluster's repository."""
    with fresh_cluster(f"{PREFIX}-rest", tmp_path_factory, "--single") as made:
        edit(made.directory / "cluster.yml", "components: [slurm]", "components: [slurm, slurm_rest]")
        edit(made.directory / SETTINGS, "---\n", f"---\nslurm_rest_host: {HOST}\n{ON}")
        add_new_release(made, tmp_path_factory.mktemp("sid"), "slurmrestd", "slurm-wlm-jwt-plugin")
        made.deepopsctl("deploy")
        made.root(HOST, "apt-get install -y curl")
        yield made


def token(cluster: LabCluster, words: str = "lifespan=600") -> str:
    """A token that the user gets for themselves."""
    return cluster.user(HOST, f"scontrol token {words}").strip().partition("=")[2]


def ask(cluster: LabCluster, path: str, key: str = "", *options: str) -> tuple[int, Any]:
    """Status, and the object that was answered, if it is one."""
    header = ["-H", f"X-SLURM-USER-TOKEN: {key}"] if key else []
    line = ["curl", "-sS", "--cacert", f"{CONFIG}/authority.crt", "-w", "\\n%{http_code}", *header, *options]
    text = cluster.user(HOST, shlex.join([*line, f"https://{HOST}:{PORT}{path}"]))
    body, _, status = text.strip().rpartition("\n")
    return int(status), json.loads(body) if body.startswith("{") else body


def submit(cluster: LabCluster, key: str) -> int:
    """Submit a job for the token's user; its number."""
    job = {
        "script": "#!/bin/sh\nsleep 300",
        "job": {
            "name": "rest; touch /tmp/rest-ran",
            "current_working_directory": "/tmp",
            "environment": ["PATH=/usr/bin:/bin"],
            "memory_per_node": {"set": True, "number": 100},
        },
    }
    options = ("-H", "Content-Type: application/json", "--data", json.dumps(job))
    status, answer = ask(cluster, f"/slurm/{VERSION}/job/submit", key, *options)
    assert status == 200, answer
    return int(answer["job_id"])


def test_a_user_sees_the_cluster_submits_and_cancels(site: LabCluster) -> None:
    key = token(site)
    status, answer = ask(site, f"/slurm/{VERSION}/nodes/", key)
    assert status == 200
    assert {node["name"] for node in answer["nodes"]} >= {"gpu01", "gpu02"}

    job = submit(site, key)
    wait_until("the job runs", lambda: site.job_state(job) == "RUNNING")
    assert site.root(HOST, f"squeue -h -j {job} -o %u").strip() == "ubuntu"

    assert ask(site, f"/slurm/{VERSION}/job/{job}", key, "-X", "DELETE")[0] == 200
    wait_until("the job is cancelled", lambda: site.job_state(job) != "RUNNING")
    status, answer = ask(site, f"/slurmdb/{VERSION}/job/{job}", key)
    assert (status, answer["jobs"][0]["user"]) == (200, "ubuntu")


def test_a_token_is_its_users_alone(site: LabCluster) -> None:
    site.root(HOST, "id rival || useradd -m rival")
    job = submit(site, token(site))
    rival = site.root(HOST, "scontrol token username=rival lifespan=600").strip().partition("=")[2]
    try:
        # by another name in the header, too
        for header in ((), ("-H", "X-SLURM-USER-NAME: ubuntu"), ("-H", "X-SLURM-USER-NAME: root")):
            ask(site, f"/slurm/{VERSION}/job/{job}", rival, "-X", "DELETE", *header)
            assert site.job_state(job) in ("RUNNING", "PENDING")
        refused = site.user(HOST, "scontrol token username=rival 2>&1 || true")
        assert "SLURM_JWT" not in refused
    finally:
        site.root(HOST, f"scancel {job}")


def test_no_token_a_forged_one_and_what_is_too_much_are_refused(site: LabCluster) -> None:
    key = token(site)
    forged = key[:-4] + ("AAAA" if key[-4:] != "AAAA" else "BBBB")
    assert ask(site, f"/slurm/{VERSION}/jobs/")[0] == 401
    status, answer = ask(site, f"/slurm/{VERSION}/jobs/", forged)
    assert status != 200 or answer["errors"], answer
    assert ask(site, "/", key)[0] == 404
    site.user(HOST, "head -c 2000000 /dev/zero > big")
    assert ask(site, f"/slurm/{VERSION}/job/submit", key, "--data-binary", "@big")[0] == 413
    chunks = ("-H", "Transfer-Encoding: chunked", "--data", "{}")
    assert ask(site, f"/slurm/{VERSION}/job/submit", key, *chunks)[0] == 413
    line = f"curl -s -o /dev/null -w '%{{http_code}}\\n' --cacert {CONFIG}/authority.crt"
    # a body without a length is one in chunks, as HTTP/2 is not offered
    sent = f"head -c 2000000 /dev/zero | {line} --http2 -H 'X-SLURM-USER-TOKEN: {key}' -T -"
    assert site.user(HOST, f"{sent} https://{HOST}:{PORT}/slurm/{VERSION}/job/submit") == "413"
    # one connection, as fast as it goes
    seen = site.user(HOST, f"{line} 'https://{HOST}:{PORT}/slurm/[1-600]' | sort | uniq -c")
    assert " 429" in seen, seen


def test_the_key_and_the_socket_are_for_no_user(site: LabCluster) -> None:
    modes = site.root(HOST, "stat -c '%U %a' /etc/slurm/jwt-*.key; stat -c '%G %a' /run/slurmrestd").splitlines()
    assert modes == ["slurm 400", "haproxy 750"]
    logged = site.root(HOST, "journalctl -o cat -u deepops-slurm-rest -u slurmrestd")
    assert "eyJ" not in logged, "a token"
    assert set(site.changed(site.parsed("deploy")).values()) == {0}


def test_slurm_26_05_serves_it_too(newer: LabCluster) -> None:
    key = token(newer)
    status, answer = ask(newer, "/slurm/v0.0.45/nodes/", key)
    assert (status, [node["name"] for node in answer["nodes"]]) == (200, [HOST])
    job = submit(newer, key)
    wait_until("the job runs", lambda: newer.job_state(job) == "RUNNING")
    assert ask(newer, f"/slurm/v0.0.45/job/{job}", key, "-X", "DELETE")[0] == 200
    wait_until("the job is cancelled", lambda: newer.job_state(job) != "RUNNING")
    assert ask(newer, "/slurm/v0.0.45/nodes/")[0] == 401
    assert set(newer.changed(newer.parsed("deploy")).values()) == {0}
