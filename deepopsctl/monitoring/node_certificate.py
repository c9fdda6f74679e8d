"""A machine's certificate and key on its disk: for journals that it sends, and for whoever else speaks TLS there."""

from __future__ import annotations

from deepopsctl.certificates import validity
from deepopsctl.certificates.authority import Authority
from deepopsctl.monitoring.resources import File, Folder, Machine, Needs

FOLDER = "/etc/deepopsctl/pki"
AUTHORITY = f"{FOLDER}/authority.crt"
CERTIFICATE = f"{FOLDER}/node.crt"
# root's
KEY = f"{FOLDER}/node.key"


def identity(machine: Machine) -> Needs:
    """The three files; a problem where the vault has no authority."""
    secret = machine.secrets.get("authority", "")
    if not secret:
        why = "no cluster_authority in secrets.yml yet: `deepopsctl inventory`, or a deploy, adds it"
        return Needs(problems=(why,))
    authority = Authority(secret)
    made = authority.identify(machine.name, [machine.address], validity.today())
    return Needs(
        folders=(Folder(FOLDER),),
        files=(
            File(AUTHORITY, authority.certificate),
            File(KEY, made.key, mode="0600", secret=True),
            File(CERTIFICATE, made.certificate),
        ),
    )
