"""Exporters that answer only by TLS, to certificates of the cluster's own authority; on unless a site switches it off.

Prometheus accepts an answer only with the certificate of the node that it scrapes: a client at an exporter's port
a job for example, has none.

Exporters that can filter certificates accept only the monitoring host's: a removed node keeps a valid
one until it ends.
"""

from __future__ import annotations

from deepopsctl.certificates import validity
from deepopsctl.certificates.authority import Authority
from deepopsctl.monitoring.resources import Directory, File, MonitoredNode, Needs
from deepopsctl.monitoring.web_config import GROUP, secret
from deepopsctl.text.header import MANAGED_HEADER

SWITCH = "exporter_tls"
# for a node whose exporters Prometheus still scrapes without TLS, because no run has reached both since TLS was enabled
IN_CLEAR = "exporter_in_clear"
# owned by the account of exporters and Prometheus, unlike the node's own key
TLS_DIRECTORY = "/etc/prometheus/deepops-tls"
AUTHORITY, CERTIFICATE, KEY = (f"{TLS_DIRECTORY}/{name}" for name in ("authority.crt", "node.crt", "node.key"))
WEB = f"{TLS_DIRECTORY}/exporters.yml"
# Where exporters know `client_allowed_sans`; older ones don't start with a key that they don't know.
_TELL_APART = ("Debian 13",)
_WEB = f"""\
{MANAGED_HEADER}\
tls_server_config:
  cert_file: {CERTIFICATE}
  key_file: {KEY}
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: {AUTHORITY}
"""


def files(node: MonitoredNode) -> Needs:
    """Certificates and web configuration of a node's exporters and Prometheus: reloaded for each connection."""
    if not node.is_on(SWITCH):
        return Needs(problems=_unencrypted_problems(node))
    if not speaks(node):
        return Needs()
    if not node.secrets.get("authority"):
        why = "monitoring_exporter_tls needs cluster_authority, which is not in secrets.yml"
        return Needs(problems=(f"{why}: `deepopsctl inventory` adds it",))
    authority = Authority(node.secrets["authority"])
    made = authority.identify(node.name, [node.address], validity.today())
    return Needs(
        directories=(Directory(TLS_DIRECTORY, mode="0750", group=GROUP),),
        files=(
            File(AUTHORITY, authority.certificate),
            secret(KEY, made.key),
            File(CERTIFICATE, made.certificate),
            File(WEB, _WEB + _only_to(node)),
        ),
    )


def speaks(node: MonitoredNode) -> bool:
    """Whether a node's exporters use TLS."""
    return node.is_on(SWITCH) and not node.is_on(IN_CLEAR)


def _unencrypted_problems(node: MonitoredNode) -> tuple[str, ...]:
    """Settings that need TLS."""
    problems = []
    private = {word.strip().lower() for word in str(node.settings.get("private_data", "")).split(",")}
    if "jobs" in private:
        problems.append(
            "PrivateData in slurm_config has jobs, but without TLS the exporters show users' jobs to anyone: "
            "set monitoring_exporter_tls: true"
        )
    if node.is_on("drain"):
        problems.append(
            "monitoring_drain needs to know that a figure comes from the node it is about, and without TLS a job can "
            "answer in a node's place: set monitoring_exporter_tls: true"
        )
    return tuple(problems)


def _only_to(node: MonitoredNode) -> str:
    """The name that a client certificate must have, for exporters that check it."""
    return f'  client_allowed_sans: ["{node.monitoring_host}"]\n' if node.platform in _TELL_APART else ""


def arguments(node: MonitoredNode, option: str = "--web.config.file") -> tuple[str, ...]:
    """Additional arguments of an exporter."""
    return (f"{option}={WEB}",) if speaks(node) else ()


def scraped(node: MonitoredNode) -> dict[str, object]:
    """Additional settings of a scrape job of such exporters."""
    if not node.is_on(SWITCH):
        return {}
    shown = {"ca_file": AUTHORITY, "cert_file": CERTIFICATE, "key_file": KEY}
    return {"scheme": "https", "tls_config": shown}
