"""EasyBuild by users without rights, and software that a site declares: installed, loaded, removed.

A stand-in takes Spack's place; the declared Python is the distribution's behind another path.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.harness import SETTINGS, LabCluster, edit
from tests.lab.smoke import damaged, validate

HOST, NODE = "ctl1", "gpu01"
CHECKS = ("environment-easybuild", "environment-spack")
SETTINGS_ON = "site_software_easybuild: true\nsite_software_spack: file:///srv/spack\nsite_software_spack_commit: {}\n"
SPACK = (
    "mkdir -p /srv/spack/bin && cd /srv/spack && printf '#!/bin/sh\\necho 1.0.2\\n' > bin/spack && chmod 755 bin/* && "
    "git init -q . && git add . && git -c user.name=x -c user.email=x@example.com commit -qm x && git tag v1.0.2 && "
    "git config --system --add safe.directory '*' && git rev-parse HEAD"
)
END = "# end of declared modules\n"
# a Python without `python` and virtualenv; and a package in a file on every node
PREFIX, FILE = "/opt/python/3.99", "/srv/tool.deb"
DECLARED = (
    f"mkdir -p {PREFIX}/bin {PREFIX}/lib {PREFIX}/share/man && ln -sf /usr/bin/python3 {PREFIX}/bin/python3 && "
    "mkdir -p /srv/tool/DEBIAN /srv/tool/usr/bin && printf '#!/bin/sh\\necho tool\\n' > /srv/tool/usr/bin/tool && "
    "chmod 755 /srv/tool/usr/bin/tool && cd /srv && printf 'Package: tool\\nVersion: 1.4.5\\nArchitecture: all\\n"
    "Maintainer: x <x@example.com>\\nDescription: x\\n' > tool/DEBIAN/control && "
    f"SOURCE_DATE_EPOCH=0 dpkg-deb --root-owner-group --build tool {FILE} >/dev/null && sha256sum {FILE}"
)
PYTHON = (
    "module load python/3.99 && cd $(mktemp -d) && virtualenv --no-download v && v/bin/pip --version && which python"
)


@pytest.fixture(scope="module")
def site(deployed: LabCluster) -> Iterator[LabCluster]:
    """The cluster, its controller installs for all; nothing is shared here."""
    spec, settings = deployed.directory / "cluster.yml", deployed.directory / SETTINGS
    before, before_settings = spec.read_text(encoding="utf-8"), settings.read_text(encoding="utf-8")
    try:
        edit(spec, "components: [slurm]", "components: [slurm, environment]")
        deployed.deepopsctl("deploy", "environment")
        settings_on = SETTINGS_ON.format(deployed.root(HOST, SPACK))
        (sha256,) = {deployed.root(node, DECLARED).split()[0] for node in (HOST, NODE, "gpu02")}
        declared = (
            f"modules_declared:\n  python/3.99: {{prefix: {PREFIX}, default: true}}\n"
            f"  tool/1.4.5: {{package: tool, url: 'file://{FILE}', sha256: {sha256}}}\n{END}"
        )
        edit(settings, "---\n", f"---\n{settings_on}{declared}")
        deployed.deepopsctl("deploy", "environment")
        yield deployed
    finally:
        settings.write_text(before_settings, encoding="utf-8")
        deployed.deepopsctl("deploy", "environment", ok=False)
        spec.write_text(before, encoding="utf-8")
        deployed.root(HOST, "rm -rf /srv/spack /opt/software /etc/gitconfig", ok=False)
        for node in (HOST, NODE, "gpu02"):
            deployed.root(node, "rm -rf /opt/python /srv/tool /srv/tool.deb /var/cache/deepopsctl/modules", ok=False)


def test_a_user_builds_with_easybuild_and_finds_spack(site: LabCluster) -> None:
    result = validate(site, suite="environment")

    assert {name: result.checks[name, HOST]["status"] for name in CHECKS} == dict.fromkeys(CHECKS, "pass")
    owners = "find /opt/software/easybuild /opt/software/spack ! -user software -print -quit"
    assert site.root(HOST, owners) == ""


def test_declared_software_is_loaded_and_its_absence_is_a_failure(site: LabCluster) -> None:
    result = validate(site, suite="environment")

    assert result.checks["environment-modules", NODE]["status"] == "pass"
    made = site.user(NODE, f"bash -lc '{PYTHON}'").splitlines()
    assert made[-1].endswith("site-python/bin/python")
    assert site.user(NODE, "bash -lc 'module load python tool/1.4.5; tool; echo $_LMFILES_'").endswith("tool/1.4.5")
    variables = site.user(NODE, "bash -lc 'module load python/3.99; echo $LD_LIBRARY_PATH $MANPATH'")
    assert variables.startswith(f"{PREFIX}/lib {PREFIX}/share/man:")
    with damaged(site, (NODE, f"mv {PREFIX} {PREFIX}.away", f"mv {PREFIX}.away {PREFIX}")):
        failed = validate(site, suite="environment").checks["environment-modules", NODE]
    assert (failed["status"], PREFIX in failed["message"]) == ("fail", True)


def test_what_is_built_for_all_is_found(site: LabCluster) -> None:
    show = "module load EasyBuild && eb --show-config"
    shown = site.root(
        HOST, f"runuser -u software -- env -i USER=software HOME=/tmp PATH=/usr/bin:/bin bash -lc '{show}'"
    )

    assert "/opt/software/easybuild" in next(line for line in shown.splitlines() if line.startswith("prefix"))
    assert "/opt/software/easybuild/modules/all:" in site.user(NODE, "bash -lc 'echo $MODULEPATH'")


def test_a_second_deploy_changes_nothing_and_without_the_settings_the_modules_go(site: LabCluster) -> None:
    assert site.parsed("deploy", "environment", "--full")["changes"] == []

    settings = site.directory / SETTINGS
    head, _, rest = settings.read_text(encoding="utf-8").partition(SETTINGS_ON.partition("\n")[0])
    settings.write_text(head + rest.partition(END)[2], encoding="utf-8")
    site.deepopsctl("deploy", "environment")

    assert not site.holds(NODE, "ls /opt/deepopsctl/modulefiles/EasyBuild/*")
    assert not site.holds(NODE, "ls /opt/deepopsctl/modulefiles/python/3.99 || dpkg -s tool")
    assert site.holds(HOST, "ls /opt/software/easybuild/EasyBuild")
