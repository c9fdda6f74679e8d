"""Journals of all nodes on the monitoring host: the sender, and the TLS proxy, store and cleanup on the log host."""

from __future__ import annotations

from deepopsctl.monitoring.node_certificate import AUTHORITY, CERTIFICATE, KEY, identity
from deepopsctl.monitoring.programs import program_files
from deepopsctl.monitoring.resources import File, MonitoredNode, Needs, Unit, at, combine
from deepopsctl.monitoring.systemd_units import WITHOUT_KEPT_RIGHTS, confined
from deepopsctl.node_programs import log_collector
from deepopsctl.node_programs.log_collector.places import DIRECTORY
from deepopsctl.text.header import MANAGED_HEADER

PACKAGE = "systemd-journal-remote"
PORT = 19532
PROGRAM = "/usr/local/sbin/deepops-logs"
UPLOAD = "systemd-journal-upload.service"
# only in a network namespace that it shares with the TLS proxy
STORE_PORT = 19531
# names of the accepted nodes; the TLS proxy reloads it when a deploy has changed it
MEMBERS = "/etc/deepopsctl/logs-members"
# Of the package. A unit with a dynamic user never starts where systemd may mount nothing: in containers without
# CAP_SYS_ADMIN. The other unit of this user lists the directories that it may not see.
_STATIC_USER = "systemd-journal-remote"
_UNITS = "/etc/systemd/system"
_UPLOAD_FOLDER, _DOOR_FOLDER = "deepops-logs-upload", "deepops-logs"
_UPLOAD_CONF = "/etc/systemd/journal-upload.conf.d/deepopsctl.conf"
_UPLOAD_UNIT = f"{_UNITS}/{UPLOAD}.d/deepopsctl.conf"
_REMOTE_CONF = "/etc/systemd/journal-remote.conf.d/deepopsctl.conf"


def needs(node: MonitoredNode) -> Needs:
    """What sends, everywhere; what collects, on the monitoring host. Nothing where logs are off."""
    if not node.is_on("logs"):
        return Needs()
    pieces = [identity(node), _sends(node)]
    if node.name == node.monitoring_host:
        # first: what sends finds it there
        pieces.insert(1, _collects(node))
    return combine(pieces)


def _sends(node: MonitoredNode) -> Needs:
    conf = _file(
        _UPLOAD_CONF,
        "[Upload]",
        f"URL=https://{at(node.monitoring_address, PORT)}",
        f"ServerKeyFile=/run/{_UPLOAD_FOLDER}/key",
        f"ServerCertificateFile={CERTIFICATE}",
        f"TrustedCertificateFile={AUTHORITY}",
    )
    unit = _file(
        _UPLOAD_UNIT,
        "[Unit]",
        # the log host may be down for a week: the unit must not stop retrying
        "StartLimitIntervalSec=0",
        "",
        "[Service]",
        # systemd moves the state of the package's dynamic user.
        "DynamicUser=no",
        f"User={_STATIC_USER}",
        WITHOUT_KEPT_RIGHTS,
        *_with_key(_UPLOAD_FOLDER),
        f"ExecStartPre={_BEGIN}",
        "Restart=always",
        "RestartSec=15",
        # while connecting it ignores SIGTERM, and its watchdog ends a connection that hangs: without a core dump
        "TimeoutStopSec=10",
        "WatchdogSignal=SIGKILL",
        # two lines for each try that fails instead of six
        "LogLevelMax=warning",
        # jobs come first
        "Nice=10",
        "CPUQuota=20%",
    )
    return Needs(
        packages=(PACKAGE,),
        files=(conf, unit),
        units=(Unit(UPLOAD, restart_on=(conf.path, unit.path, AUTHORITY, CERTIFICATE, KEY)),),
    )


def _with_key(directory: str) -> tuple[str, ...]:
    """A copy of the key in /run for a service that is not root. LoadCredential= does not work in some containers."""
    copy = f'install -m 0400 {KEY} "$$RUNTIME_DIRECTORY/key"'
    own = 'chown --reference="$$RUNTIME_DIRECTORY/." "$$RUNTIME_DIRECTORY/key"'
    return (f"RuntimeDirectory={directory}", "RuntimeDirectoryMode=0700", f"ExecStartPre=+/bin/sh -c '{copy} && {own}'")


# Entries from before the first deploy are not sent: 1,000 nodes would send their old journals at once.
_BEGIN = (
    '/bin/sh -c \'test -s "$$STATE_DIRECTORY/state" || journalctl --quiet --lines=1 --show-cursor'
    ' | sed -n "s/^-- cursor: /LAST_CURSOR=/p" > "$$STATE_DIRECTORY/state"\''
)


def _collects(node: MonitoredNode) -> Needs:
    days, gigabytes = node.settings.get("logs_keep_days", 30), node.settings.get("logs_keep_gb", 20)
    sources = program_files(log_collector, PROGRAM)
    # Debian 13's default limits are 4 GB and 100 files for all nodes together; Debian 12 has none, and logs a warning
    conf = _file(_REMOTE_CONF, "[Remote]", f"MaxUse={gigabytes}G", "MaxFiles=0")
    socket, proxy, store, tidy, timer = _socket(node), _tls_proxy(), _store(), _tidy(days, gigabytes), _timer()
    members = File(MEMBERS, "".join(f"{name}\n" for name in node.members))
    program = tuple(file.path for file in sources)
    return Needs(
        packages=(PACKAGE,),
        files=(*sources, conf, members, socket, store, proxy, tidy, timer),
        units=(
            Unit("deepops-logs.socket", restart_on=(socket.path,)),
            Unit("deepops-logs-store.service", restart_on=(store.path, conf.path)),
            Unit("deepops-logs.service", restart_on=(proxy.path, store.path, *program, AUTHORITY, CERTIFICATE, KEY)),
            Unit("deepops-logs-tidy.timer", restart_on=(timer.path,)),
        ),
    )


def _socket(node: MonitoredNode) -> File:
    return _file(
        f"{_UNITS}/deepops-logs.socket",
        "[Unit]",
        "Description=socket that receives journals of nodes",
        "",
        "[Socket]",
        f"ListenStream={at(node.address, PORT)}",
        # at boot the address may not be there yet
        "FreeBind=yes",
        "",
        "[Install]",
        "WantedBy=sockets.target",
    )


def _tls_proxy() -> File:
    """It runs in the store's network namespace: no other program on this node can write to the store."""
    return _file(
        f"{_UNITS}/deepops-logs.service",
        "[Unit]",
        "Description=TLS proxy for journals of nodes with a certificate of the cluster",
        "Requires=deepops-logs.socket",
        "After=deepops-logs-store.service",
        "JoinsNamespaceOf=deepops-logs-store.service",
        "",
        "[Service]",
        f"ExecStart={PROGRAM} door --certificate={CERTIFICATE} --key=/run/{_DOOR_FOLDER}/key --authority={AUTHORITY}"
        f" --members={MEMBERS} --store={STORE_PORT}",
        *_with_key(_DOOR_FOLDER),
        f"User={_STATIC_USER}",
        "Restart=always",
        "RestartSec=5",
        *confined(PrivateNetwork="yes"),
        # two for each node
        "LimitNOFILE=65536",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    )


def _store() -> File:
    return _file(
        f"{_UNITS}/deepops-logs-store.service",
        "[Unit]",
        "Description=stores the journals of all nodes, one file each",
        "",
        "[Service]",
        f"ExecStart=/usr/lib/systemd/systemd-journal-remote --listen-http=127.0.0.1:{STORE_PORT} --split-mode=host"
        f" --output={DIRECTORY}/",
        f"User={_STATIC_USER}",
        f"InaccessiblePaths=-/run/{_UPLOAD_FOLDER} -/run/{_DOOR_FOLDER}",
        # users who may read this node's journal may read the others'
        "Group=systemd-journal",
        "LogsDirectory=journal/remote",
        "Restart=always",
        "RestartSec=5",
        "WatchdogSec=3min",
        *confined(PrivateNetwork="yes"),
        "LimitNOFILE=524288",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    )


def _tidy(days: object, gigabytes: object) -> File:
    return _file(
        f"{_UNITS}/deepops-logs-tidy.service",
        "[Unit]",
        "Description=removes collected journals beyond their limits",
        "",
        "[Service]",
        "Type=oneshot",
        f"ExecStart={PROGRAM} tidy --days={days} --gigabytes={gigabytes}",
        "Nice=10",
        # the journals belong to the store, and systemd stops and starts it
        *confined(
            ReadWritePaths=f"-{DIRECTORY}", CapabilityBoundingSet="CAP_DAC_OVERRIDE", RestrictAddressFamilies="AF_UNIX"
        ),
    )


def _timer() -> File:
    return _file(
        f"{_UNITS}/deepops-logs-tidy.timer",
        "[Unit]",
        "Description=removes collected journals beyond their limits",
        "",
        "[Timer]",
        "OnBootSec=5min",
        # often: a node that floods the log has to be limited before the disk is full
        "OnUnitInactiveSec=5min",
        "",
        "[Install]",
        "WantedBy=timers.target",
    )


def _file(path: str, *lines: str) -> File:
    return File(path, MANAGED_HEADER + "\n".join(lines) + "\n")
