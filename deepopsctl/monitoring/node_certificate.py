"""A node's certificate and key on its disk: for sending journals, and for other TLS services of the node."""

from __future__ import annotations

from deepopsctl.certificates import validity
from deepopsctl.certificates.authority import Authority
from deepopsctl.monitoring.resources import Directory, File, MonitoredNode, Needs

PKI_DIRECTORY = "/etc/deepopsctl/pki"
AUTHORITY = f"{PKI_DIRECTORY}/authority.crt"
CERTIFICATE = f"{PKI_DIRECTORY}/node.crt"
# root's
KEY = f"{PKI_DIRECTORY}/node.key"


def identity(node: MonitoredNode) -> Needs:
    """The three files; a problem where the vault has no authority."""
    secret = node.secrets.get("authority", "")
    if not secret:
        why = "no cluster_authority in secrets.yml yet: `deepopsctl inventory`, or a deploy, adds it"
        return Needs(problems=(why,))
    authority = Authority(secret)
    made = authority.identify(node.name, [node.address], validity.today())
    return Needs(
        directories=(Directory(PKI_DIRECTORY),),
        files=(
            File(AUTHORITY, authority.certificate),
            File(KEY, made.key, mode="0600", secret=True),
            File(CERTIFICATE, made.certificate),
        ),
    )
