"""The journals of all machines on the monitoring host: what sends them, and what takes, keeps and bounds them there."""

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
# only in a network namespace that it shares with the door
STORE_PORT = 19531
# whose journals are taken; the door sees for itself when a deploy has written another
MEMBERS = "/etc/deepopsctl/logs-members"
# Of the package. A unit with a dynamic user never starts where systemd may mount nothing: in containers without
# CAP_SYS_ADMIN. Which of its folders another unit of this user may not see is said there.
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
        # the log host may be away for a week: a unit that gives up after some tries is found by nobody
        "StartLimitIntervalSec=0",
        "",
        "[Service]",
        # What was in the package's folder for its dynamic user is moved by systemd.
        "DynamicUser=no",
        f"User={_STATIC_USER}",
        WITHOUT_KEPT_RIGHTS,
        *_with_key(_UPLOAD_FOLDER),
        f"ExecStartPre={_BEGIN}",
        "Restart=always",
        "RestartSec=15",
        # where nobody answers it hears no SIGTERM, and its watchdog ends a connection that hangs: without a core dump
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
    """A copy of the key in /run for a service that is not root. LoadCredential= brings nothing in some containers."""
    copy = f'install -m 0400 {KEY} "$$RUNTIME_DIRECTORY/key"'
    own = 'chown --reference="$$RUNTIME_DIRECTORY/." "$$RUNTIME_DIRECTORY/key"'
    return (f"RuntimeDirectory={directory}", "RuntimeDirectoryMode=0700", f"ExecStartPre=+/bin/sh -c '{copy} && {own}'")


# What a machine logged before its first deploy stays there: a year's journal of 1,000 machines at once helps nobody.
_BEGIN = (
    '/bin/sh -c \'test -s "$$STATE_DIRECTORY/state" || journalctl --quiet --lines=1 --show-cursor'
    ' | sed -n "s/^-- cursor: /LAST_CURSOR=/p" > "$$STATE_DIRECTORY/state"\''
)


def _collects(node: MonitoredNode) -> Needs:
    days, gigabytes = node.settings.get("logs_keep_days", 30), node.settings.get("logs_keep_gb", 20)
    sources = program_files(log_collector, PROGRAM)
    # Debian 13's own bounds are 4 GB and 100 files for all machines together; Debian 12's knows none, and says so
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
        "Description=where machines send their journals",
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
    """It lives in the store's network: nobody else on this machine can write to the store."""
    return _file(
        f"{_UNITS}/deepops-logs.service",
        "[Unit]",
        "Description=takes journals from machines with a certificate of the cluster",
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
        # two for each machine
        "LimitNOFILE=65536",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    )


def _store() -> File:
    return _file(
        f"{_UNITS}/deepops-logs-store.service",
        "[Unit]",
        "Description=keeps the journals of all machines, a file each",
        "",
        "[Service]",
        f"ExecStart=/usr/lib/systemd/systemd-journal-remote --listen-http=127.0.0.1:{STORE_PORT} --split-mode=host"
        f" --output={DIRECTORY}/",
        f"User={_STATIC_USER}",
        f"InaccessiblePaths=-/run/{_UPLOAD_FOLDER} -/run/{_DOOR_FOLDER}",
        # who may read this machine's journal may read the others'
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
        "Description=keeps collected journals within their bounds",
        "",
        "[Service]",
        "Type=oneshot",
        f"ExecStart={PROGRAM} tidy --days={days} --gigabytes={gigabytes}",
        "Nice=10",
        # the journals are the store's, and systemd is asked to stop and start that
        *confined(
            ReadWritePaths=f"-{DIRECTORY}", CapabilityBoundingSet="CAP_DAC_OVERRIDE", RestrictAddressFamilies="AF_UNIX"
        ),
    )


def _timer() -> File:
    return _file(
        f"{_UNITS}/deepops-logs-tidy.timer",
        "[Unit]",
        "Description=keeps collected journals within their bounds",
        "",
        "[Timer]",
        "OnBootSec=5min",
        # often: what a machine gone mad writes has to find its bound before the disk is full
        "OnUnitInactiveSec=5min",
        "",
        "[Install]",
        "WantedBy=timers.target",
    )


def _file(path: str, *lines: str) -> File:
    return File(path, MANAGED_HEADER + "\n".join(lines) + "\n")
