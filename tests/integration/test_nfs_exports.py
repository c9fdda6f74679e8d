"""The module nfs_exports as Ansible runs it, on an /etc of its own: whom it warns of when an export goes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT

EXPORTS = "/etc/exports.d/deepopsctl.exports"
# in a mount namespace of its own: nothing of this host's is touched
APART = f"""
cp -a /etc "$1/etc"
mount --bind "$1/etc" /etc
mount -t tmpfs none /var/lib
mkdir -p /etc/exports.d /var/lib/nfs
echo '/srv/old 192.0.2.0/24(rw,sync)' >{EXPORTS}
"""
SCRIPT = f"""
printf '192.0.2.9:/srv/old:0x00000001\\n192.0.2.1:/srv/old:0x00000001\\n' >/var/lib/nfs/rmtab
"$2" localhost -c local --check -m deepopsctl.cluster.nfs_exports -a "$3"
cat {EXPORTS}
"""
# the server's own tool, first one that refuses; a line of another program's file would make it do that
WITHDRAWN = f"""
mkdir "$1/bin"
export PATH="$1/bin:$PATH"
for status in 1 0 0; do
    printf '#!/bin/sh\\necho "asked $*" >>%s\\nexit %s\\n' "$1/asked" "$status" >"$1/bin/exportfs"
    chmod +x "$1/bin/exportfs"
    "$2" localhost -c local -m deepopsctl.cluster.nfs_exports -a "$3" || true
done
test ! -e {EXPORTS}
"""
WARNING = "is no longer for {0}: {0} {1}; what is not unmounted there fails, and can hang its shutdown"


pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has mounts of its own")


def run_in_namespace(script: str, directory: Path, params: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Run a script with the directory, Ansible's command and the module's arguments, where /srv/old is exported."""
    ansible = str(Path(sys.executable).parent / "ansible")
    plugins = {"ANSIBLE_COLLECTIONS_PATH": ".collections"}
    return subprocess.run(
        ["unshare", "--mount", "bash", "-ec", APART + script, "bash", str(directory), ansible, json.dumps(params)],
        cwd=ROOT, env={**os.environ, **plugins, "ANSIBLE_LOCAL_TEMP": str(directory)}, capture_output=True, text=True,
    )  # fmt: skip


def test_a_plan_warns_of_who_loses_what_is_mounted_and_changes_nothing(tmp_path: Path) -> None:
    address = subprocess.run(["hostname", "--all-ip-addresses"], capture_output=True, text=True).stdout.split()
    if not address:
        pytest.skip("this machine has no address but its own")
    managed = {"path": "/mnt", "export": "/srv/old", "server": address[0], "client": "192.0.2.7"}
    strays = [{**managed, "node": "gpu1"}, {**managed, "node": "gpu2", "server": "198.51.100.1"}]
    params = {
        "component": "storage",
        "step": "nfs_exports",
        "exports": [],
        "confirmed_addresses": ["192.0.2.1"],
        "unmanaged_mounts": strays,
    }

    done = run_in_namespace(SCRIPT, tmp_path, params)

    assert done.returncode == 0, done.stdout + done.stderr
    output = " ".join((done.stdout + done.stderr).split())
    assert WARNING.format("gpu1", "has it mounted at /mnt, not by deepopsctl") in output
    assert WARNING.format("192.0.2.9", "had it mounted when mountd last heard of that") in output
    assert output.count("is no longer for") == 2
    assert done.stdout.endswith("/srv/old 192.0.2.0/24(rw,sync)\n")


def test_an_export_that_the_server_did_not_withdraw_is_withdrawn_by_the_next_deploy(tmp_path: Path) -> None:
    params = {"component": "storage", "step": "nfs_exports", "exports": []}

    done = run_in_namespace(WITHDRAWN, tmp_path, params)

    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "asked").read_text() == "asked -ra\nasked -ra\n"
    assert [line.split()[2] for line in done.stdout.splitlines() if "=>" in line] == ["FAILED!", "CHANGED", "SUCCESS"]
