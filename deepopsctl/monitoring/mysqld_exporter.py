"""The exporter of MariaDB's metrics, on the slurmdbd node; it logs in by the socket, without a password."""

from __future__ import annotations

from deepopsctl.monitoring import tls
from deepopsctl.monitoring.resources import File, MonitoredNode, Needs, Target, Unit, at
from deepopsctl.monitoring.systemd_units import started_by
from deepopsctl.text.header import MANAGED_HEADER

PACKAGE = "prometheus-mysqld-exporter"
UNIT = f"{PACKAGE}.service"
PORT = 9104
DBD = "slurm_dbd"
CONFIG = "/etc/prometheus/deepops-mysqld.cnf"
# MariaDB takes the word of the kernel for who it is; the exporter refuses to start without any password
_LOGIN = f"""\
{MANAGED_HEADER}\
# MariaDB admits the local account `prometheus` by the socket, without a password and without privileges on data.
[client]
user = prometheus
password = none
socket = /run/mysqld/mysqld.sock
"""


def needs(node: MonitoredNode) -> Needs:
    """Only on the slurmdbd node. It uses the certificate of the node exporter."""
    if DBD not in node.groups:
        return Needs()
    command = (
        "/usr/bin/prometheus-mysqld-exporter",
        f"--web.listen-address={at(node.address, PORT)}",
        *tls.arguments(node),
        f"--config.my-cnf={CONFIG}",
        # these two collectors need no privileges; the others do
        "--collect.global_status",
        "--collect.global_variables",
        "--no-collect.slave_status",
        "--no-collect.info_schema.innodb_cmp",
        "--no-collect.info_schema.innodb_cmpmem",
        "--no-collect.info_schema.query_response_time",
    )
    login, dropin = File(CONFIG, _LOGIN), started_by(UNIT, command, "Restart=always", "RestartSec=5")
    return Needs(
        packages=(PACKAGE,),
        files=(login, dropin),
        units=(Unit(UNIT, restart_on=(login.path, dropin.path), port=PORT),),
    )


def targets(node: MonitoredNode) -> tuple[Target, ...]:
    """One, on the slurmdbd node."""
    return (Target("mysqld", at(node.address, PORT)),) if DBD in node.groups else ()
