"""A package that stands where Grafana's would, which can't be had here: the same name, files, user and unit."""

from __future__ import annotations

from tests.lab.aptrepo import Stub
from tests.support.paths import ROOT

PROGRAMS = ("grafana-server", "grafana-cli")
UNIT = """\
[Unit]
Description=Grafana instance (a stand-in)
[Service]
EnvironmentFile=/etc/default/grafana-server
User=grafana
Group=grafana
ExecStart=/usr/sbin/grafana-server --config=${CONF_FILE}
UMask=0027
[Install]
WantedBy=multi-user.target
"""
# as the real one's, which starts nothing at its first installation
POSTINST = """\
#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
getent group grafana >/dev/null || groupadd --system grafana
id grafana >/dev/null 2>&1 || useradd --system --gid grafana --no-create-home --shell /bin/false grafana
mkdir -p /var/lib/grafana /etc/grafana/provisioning/dashboards /etc/grafana/provisioning/datasources
chown -R grafana:grafana /var/lib/grafana
chown -Rh root:grafana /etc/grafana/*
find /etc/grafana -type f -exec chmod 640 {} ';'
find /etc/grafana -type d -exec chmod 755 {} ';'
[ -z "$2" ] || { systemctl daemon-reload; systemctl restart grafana-server || true; }
"""
PRERM = """\
#!/bin/sh
[ "$1" != remove ] || systemctl disable --now grafana-server || true
"""


def grafana(version: str) -> Stub:
    """The package in a version."""
    programs = {f"usr/sbin/{name}": (ROOT / "tests" / "fakes" / name).read_text(encoding="utf-8") for name in PROGRAMS}
    others = {
        "usr/lib/systemd/system/grafana-server.service": UNIT,
        "etc/default/grafana-server": "CONF_FILE=/etc/grafana/grafana.ini\n",
        "etc/grafana/grafana.ini": "; the package's own\n",
    }
    return Stub("grafana", version, files={**programs, **others}, postinst=POSTINST, prerm=PRERM)
