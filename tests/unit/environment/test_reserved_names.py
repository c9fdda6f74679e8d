"""Names that give rights, at once or with a package: refused in people.yml, and never the directory service's."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepopsctl.environment import values
from deepopsctl.environment.reserved_names import hidden_names, is_reserved
from deepopsctl.text.problems import RefusedError
from tests.support import node_modules as nodeside
from tests.support.role_templates import render

filters = nodeside.plugin("filter", "environment")
RIGHTS = ["docker", "lxd", "admin", "libvirt", "mysql", "prometheus", "sudo", "wheel", "shadow", "disk", "kvm", "adm",
          "grafana",
          "sssd", "munge", "slurm", "systemd-journal", "postgres", "incus-admin", "squid", "ceph"]  # fmt: skip


@pytest.mark.parametrize("name", [*RIGHTS, "_chrony", "systemd-network", "deepops-proxy"])
def test_neither_a_person_nor_a_group_has_such_a_name(name: str) -> None:
    for check in (values.check_login, values.check_group):
        with pytest.raises(RefusedError, match=f"{name} is the name of an account or group of the system"):
            check(name)


@pytest.mark.parametrize("name", ["alice", "def-curie", "dockerfan", "admin2", "mysql-lab", "system", "curie-storage"])
def test_other_names_are_free(name: str) -> None:
    assert (values.check_login(name), values.check_group(name)) == (name, name)


def test_the_directory_gives_none_of_them_to_anybody() -> None:
    config = render(
        "sssd",
        "sssd.conf.j2",
        ansible_managed="managed",
        sssd_directory={"passwords": False, "servers": [], "base": "", "schema": "ad", "bind_dn": "", "first_id": 1000,
                        "last_id": 0, "access_filter": "(a=b)"},
        sssd_hidden_users=filters.environment_hidden(["ops"]),
        sssd_hidden_groups=filters.environment_hidden([]),
        environment_home="/home",
        sssd_cached_days=1,
        __sssd_authority="ca.pem",
        __sssd_schema_of_expiry={"ad": "ad"},
    )  # fmt: skip
    lines = dict(line.split(" = ", 1) for line in config.splitlines() if " = " in line)

    users, groups = (set(lines[key].split(", ")) for key in ("filter_users", "filter_groups"))
    assert users - groups == {"ops"}
    assert set(RIGHTS) <= groups == set(hidden_names())


def test_every_account_and_group_of_this_system_is_known() -> None:
    """As of a Debian or Ubuntu with what comes by itself; the lab has nodes with all that a deploy installs."""
    names = {
        line.split(":")[0]
        for path in ("/etc/passwd", "/etc/group")
        for line in Path(path).read_text(encoding="utf-8").splitlines()
        if int(line.split(":")[2]) < 100
    }

    assert sorted(name for name in names if not is_reserved(name)) == []
