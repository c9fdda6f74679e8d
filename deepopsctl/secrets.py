"""Random keys and passwords of a cluster, kept in a file that ansible-vault encrypts."""

from __future__ import annotations

import base64
import secrets
from pathlib import Path

import yaml

from deepopsctl.errors import ControlMachineError
from deepopsctl.yamlout import block

MUNGE_KEY_BYTES = 128


def new_password() -> str:
    """A password for the vault: 256 random bits as text."""
    return secrets.token_urlsafe(32)


def new_secrets() -> dict[str, str]:
    """Fresh secrets, by the names of the Ansible variables that hold them."""
    from deepopsctl.monitoring.pki import new_authority
    from deepopsctl.monitoring.validity import today

    return {
        "munge_key": base64.b64encode(secrets.token_bytes(MUNGE_KEY_BYTES)).decode(),
        "slurm_dbd_password": secrets.token_urlsafe(32),
        "cluster_authority": new_authority(today()),
    }


def encrypt(variables: dict[str, str], password: str) -> str:
    """The text of a vault file that holds these variables."""
    try:
        from ansible.parsing.vault import VaultLib, VaultSecret
    except Exception as error:  # Ansible reads its configuration on import, and says what is wrong in its own ways
        raise ControlMachineError(
            f"Ansible can't be loaded: {error}", "check $ANSIBLE_CONFIG and ./ansible.cfg"
        ) from error

    vault = VaultLib([("default", VaultSecret(password.encode()))])
    encrypted: bytes = vault.encrypt(block(dict(variables)))
    return encrypted.decode()


def decrypt(text: str, password: str) -> dict[str, str]:
    """The variables in the text of a vault file; a ControlMachineError where the password does not open it."""
    from ansible.parsing.vault import AnsibleVaultError, VaultLib, VaultSecret

    try:
        plain: bytes = VaultLib([("default", VaultSecret(password.encode()))]).decrypt(text.encode())
    except AnsibleVaultError as error:
        raise ControlMachineError(
            "secrets.yml does not open", "is .vault-password the one that it was encrypted with?"
        ) from error
    found = yaml.safe_load(plain)
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def is_encrypted(path: Path) -> bool:
    """Whether a file is one of ansible-vault."""
    with path.open("rb") as stream:
        return stream.read(14) == b"$ANSIBLE_VAULT"


def why_closed(path: Path, password_file: Path) -> str:
    """Why the password in a file does not open a vault file; '' where it does."""
    from ansible.parsing.vault import AnsibleVaultError, VaultLib, VaultSecret

    password = password_file.read_bytes().strip()
    if not password:
        return f"{password_file.name} is empty"
    try:
        VaultLib([("default", VaultSecret(password))]).decrypt(path.read_bytes())
    except AnsibleVaultError:
        return f"the password in {password_file.name} does not open {path.name}"
    return ""
