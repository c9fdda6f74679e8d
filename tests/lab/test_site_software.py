"""EasyBuild by users without rights: installed, a package built and loaded, removed. A stand-in takes Spack's place."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.harness import SETTINGS, LabCluster, edit
from tests.lab.smoke import validate

HOST, NODE = "ctl1", "gpu01"
CHECKS = ("environment-easybuild", "environment-spack")
SETTINGS_ON = "site_software_easybuild: true\nsite_software_spack: file:///srv/spack\n"
SPACK = (
    "mkdir -p /srv/spack/bin && cd /srv/spack && printf '#!/bin/sh\\necho 1.0.2\\n' > bin/spack && chmod 755 bin/* && "
    "git init -q . && git add . && git -c user.name=x -c user.email=x@example.com commit -qm x && git tag v1.0.2 && "
    "git config --system --add safe.directory '*'"
)


@pytest.fixture(scope="module")
def site(deployed: LabCluster) -> Iterator[LabCluster]:
    """The cluster, its controller installs for all; nothing is shared here."""
    spec, settings = deployed.directory / "cluster.yml", deployed.directory / SETTINGS
    before, before_settings = spec.read_text(encoding="utf-8"), settings.read_text(encoding="utf-8")
    try:
        edit(spec, "components: [slurm]", "components: [slurm, environment]")
        deployed.deepopsctl("deploy", "environment")
        deployed.root(HOST, SPACK)
        edit(settings, "---\n", f"---\n{SETTINGS_ON}")
        deployed.deepopsctl("deploy", "environment")
        yield deployed
    finally:
        settings.write_text(before_settings, encoding="utf-8")
        deployed.deepopsctl("deploy", "environment", ok=False)
        spec.write_text(before, encoding="utf-8")
        deployed.root(HOST, "rm -rf /srv/spack /opt/software /etc/gitconfig", ok=False)


def test_a_user_builds_with_easybuild_and_finds_spack(site: LabCluster) -> None:
    result = validate(site, suite="environment")

    assert {name: result.checks[name, HOST]["status"] for name in CHECKS} == dict.fromkeys(CHECKS, "pass")
    owners = "find /opt/software/easybuild /opt/software/spack ! -user software -print -quit"
    assert site.root(HOST, owners) == ""


def test_what_is_built_for_all_is_found(site: LabCluster) -> None:
    show = "module load EasyBuild && eb --show-config"
    shown = site.root(
        HOST, f"runuser -u software -- env -i USER=software HOME=/tmp PATH=/usr/bin:/bin bash -lc '{show}'"
    )

    assert "/opt/software/easybuild" in next(line for line in shown.splitlines() if line.startswith("prefix"))
    assert "/opt/software/easybuild/modules/all:" in site.user(NODE, "bash -lc 'echo $MODULEPATH'")


def test_a_second_deploy_changes_nothing_and_without_the_settings_the_modules_go(site: LabCluster) -> None:
    assert site.parsed("deploy", "environment", "--full")["changes"] == []

    edit(site.directory / SETTINGS, SETTINGS_ON, "")
    site.deepopsctl("deploy", "environment")

    assert not site.holds(NODE, "ls /opt/deepopsctl/modulefiles/EasyBuild/*")
    assert site.holds(HOST, "ls /opt/software/easybuild/EasyBuild")
