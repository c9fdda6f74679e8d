"""Exporters that answer only by TLS, to certificates of the cluster's own authority; off unless asked for.

Where they can tell certificates apart they take the monitoring host's alone: a machine that was removed keeps a good
one until it ends.
"""

from __future__ import annotations

from deepopsctl.monitoring import validity
from deepopsctl.monitoring.needs import File, Folder, Machine, Needs
from deepopsctl.monitoring.pki import Authority
from deepopsctl.monitoring.webconfig import GROUP, secret
from deepopsctl.ours import HEADER

SWITCH = "exporter_tls"
# in the account of exporters and of Prometheus, unlike the machine's own key
FOLDER = "/etc/prometheus/deepops-tls"
AUTHORITY, CERTIFICATE, KEY = (f"{FOLDER}/{name}" for name in ("authority.crt", "node.crt", "node.key"))
WEB = f"{FOLDER}/exporters.yml"
# Where exporters know `client_allowed_sans`; older ones don't start with a key that they don't know.
_TELL_APART = ("Debian 13",)
_WEB = f"""\
{HEADER}\
tls_server_config:
  cert_file: {CERTIFICATE}
  key_file: {KEY}
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: {AUTHORITY}
"""


def files(machine: Machine) -> Needs:
    """What exporters and Prometheus of a machine show and ask for: read anew for each connection."""
    if not machine.is_on(SWITCH):
        return Needs()
    if not machine.secrets.get("authority"):
        why = "monitoring_exporter_tls needs cluster_authority, which is not in secrets.yml"
        return Needs(problems=(f"{why}: `deepopsctl inventory` adds it",))
    authority = Authority(machine.secrets["authority"])
    made = authority.identify(machine.name, [machine.address], validity.today())
    return Needs(
        folders=(Folder(FOLDER, mode="0750", group=GROUP),),
        files=(
            File(AUTHORITY, authority.certificate),
            secret(KEY, made.key),
            File(CERTIFICATE, made.certificate),
            File(WEB, _WEB + _only_to(machine)),
        ),
    )


def _only_to(machine: Machine) -> str:
    """The name that a certificate has to be for, where exporters ask."""
    return f'  client_allowed_sans: ["{machine.monitoring_host}"]\n' if machine.platform in _TELL_APART else ""


def arguments(machine: Machine, option: str = "--web.config.file") -> tuple[str, ...]:
    """What an exporter's command line has besides."""
    return (f"{option}={WEB}",) if machine.is_on(SWITCH) else ()


def scraped(machine: Machine) -> dict[str, object]:
    """What a scrape job of such exporters has besides."""
    if not machine.is_on(SWITCH):
        return {}
    shown = {"ca_file": AUTHORITY, "cert_file": CERTIFICATE, "key_file": KEY}
    return {"scheme": "https", "tls_config": shown}
