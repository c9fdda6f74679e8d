"""Random keys and passwords of a cluster, in a file encrypted by ansible-vault."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from pathlib import Path

import yaml

from deepopsctl.errors import ControlMachineError, InputError
from deepopsctl.files import read_file, read_text, write_atomic
from deepopsctl.text.yaml_editor import YamlText
from deepopsctl.text.yaml_reader import PlainTagLoader
from deepopsctl.text.yaml_writer import block

MUNGE_KEY_BYTES = 128
_EDIT = "correct it: ansible-vault edit --vault-password-file .vault-password inventory/group_vars/all/secrets.yml"


def new_password() -> str:
    """A password for the vault: 256 random bits as text."""
    return secrets.token_urlsafe(32)


def new_munge_key() -> str:
    """A munge key, in base64."""
    return base64.b64encode(secrets.token_bytes(MUNGE_KEY_BYTES)).decode()


def new_secrets() -> dict[str, str]:
    """Fresh secrets, by the names of the Ansible variables that hold them."""
    from deepopsctl.certificates.authority import new_authority
    from deepopsctl.certificates.validity import today

    return {
        "munge_key": new_munge_key(),
        "slurm_dbd_password": new_password(),
        "cluster_authority": new_authority(today()),
        "monitoring_web_password": secrets.token_urlsafe(24),
        "grafana_admin_password": secrets.token_urlsafe(24),
        "backup_password": new_password(),
        "backup_monitoring_password": new_password(),
    }


def encrypt(variables: dict[str, str], password: bytes) -> str:
    """The text of a vault file that holds these variables."""
    return _encrypted(block(dict(variables)), password)


def decrypt(text: str, password: bytes) -> dict[str, str]:
    """The variables in the text of a vault file; a ControlMachineError where the password does not open it."""
    return {str(key): str(value) for key, value in _variables(_plain(text, password)).items()}


def add_missing(path: Path, password_file: Path) -> tuple[str, ...]:
    """Add missing secrets that newer versions of deepopsctl need to a vault; returns their names."""
    if not path.is_file() or not password_file.is_file() or not is_encrypted(path):
        return ()
    password = read_file(password_file).strip()
    text = _plain(read_text(path, "replace"), password)
    there = _variables(text)
    missing = {name: value for name, value in new_secrets().items() if name not in there}
    if missing:
        # the user may have mappings and comments in it
        text = with_values(text, missing) if there else f"{text.rstrip()}\n{block(dict(missing))}"
        write_atomic(path, _encrypted(text, password), 0o600)
    return tuple(missing)


def read(path: Path, password_file: Path) -> dict[str, str]:
    """The secrets of a vault."""
    return decrypt(_encrypted_text(path), read_file(password_file).strip())


def change(path: Path, password_file: Path, values: Mapping[str, str | None]) -> None:
    """Change values of a vault, or remove them (None); the user's other content stays."""
    password = read_file(password_file).strip()
    plain = _plain(_encrypted_text(path), password)
    _variables(plain)
    text = with_values(plain, values)
    write_atomic(path, _encrypted(text, password), 0o600)


def with_values(text: str, values: Mapping[str, str | None]) -> str:
    """The plain text of a vault with new values; new names are appended."""
    document = YamlText.read(text)
    for name in (name for name, value in values.items() if value is None):
        document.remove_key(name)
    document.set_keys(document.variables, {name: value for name, value in values.items() if value is not None})
    return document.result()


def is_encrypted(path: Path) -> bool:
    """Whether a file is encrypted by ansible-vault."""
    return read_file(path, 14) == b"$ANSIBLE_VAULT"


def why_not_opened(path: Path, password_file: Path) -> str:
    """Why the password in a file does not decrypt a vault file; '' if it does. Faster than Ansible's own check."""
    password = read_file(password_file).strip()
    if not password:
        return f"{password_file.name} is empty"
    try:
        opens = _opens(read_file(path), password)
    except ValueError:
        return f"{path.name} is damaged: a merge by git has to leave one side of it, whole"
    return "" if opens else f"the password in {password_file.name} does not open {path.name}"


def _encrypted(plain: str, password: bytes) -> str:
    try:
        from ansible.parsing.vault import VaultLib, VaultSecret
    except Exception as error:  # Ansible reads its configuration on import and raises various errors
        raise ControlMachineError(
            f"Ansible can't be loaded: {error}", "check $ANSIBLE_CONFIG and ./ansible.cfg"
        ) from error

    vault = VaultLib([("default", VaultSecret(password))])
    encrypted: bytes = vault.encrypt(plain)
    return encrypted.decode()


def _plain(text: str, password: bytes) -> str:
    from ansible.errors import AnsibleError
    from ansible.parsing.vault import VaultLib, VaultSecret

    try:
        plain: bytes = VaultLib([("default", VaultSecret(password))]).decrypt(text.encode())
    except AnsibleError as error:
        raise ControlMachineError(
            "secrets.yml does not open", "is .vault-password the one that it was encrypted with, and is the file whole?"
        ) from error
    return plain.decode()


def _variables(plain: str) -> dict[object, object]:
    """The variables in the plain text of a vault; the InputError where there are none quotes nothing of it."""
    where = "secrets.yml"
    try:
        variables = yaml.load(plain, PlainTagLoader) or {}  # noqa: S506 (a safe loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where += f":{mark.line + 1}" if mark else ""
        variables = None
    if not isinstance(variables, dict):
        raise InputError.single(where, "what is encrypted in it are not variables in valid YAML", _EDIT)
    return variables


def _encrypted_text(path: Path) -> str:
    if not path.is_file() or not is_encrypted(path):
        what = "is not there" if not path.is_file() else "is not encrypted by ansible-vault as a whole"
        raise ControlMachineError(f"{path} {what}", "the cluster's keys and passwords belong there (deepopsctl init)")
    return read_text(path, "replace")


def _opens(vault: bytes, password: bytes) -> bool:
    """Whether a vault file was encrypted with this password (formats 1.1 and 1.2); a ValueError if it is none."""
    salt, signature, content = bytes.fromhex("".join(vault.decode("ascii").split()[1:])).split(b"\n", 2)
    keys = hashlib.pbkdf2_hmac("sha256", password, bytes.fromhex(salt.decode()), 10_000, 80)
    expected = hmac.new(keys[32:64], bytes.fromhex(content.decode()), "sha256").hexdigest()
    return hmac.compare_digest(expected.encode(), signature)
