"""What the role `web` brings to nodes: locks for each platform, and certificates that open nothing else."""

from __future__ import annotations

import base64
from datetime import date

import pytest
import yaml
from ansible_collections.deepopsctl.cluster.plugins.filter import web
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from deepopsctl.certificates.authority import Authority, new_authority
from tests.support.paths import ROOT

LOCKS = ROOT / "roles/web/files/locks"
VERSIONS = yaml.safe_load((ROOT / "group_vars/all/versions.yml").read_text(encoding="utf-8"))
PYTHONS = sorted({entry["python"] for entry in VERSIONS["environment_module_versions"].values()})


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("python", PYTHONS)
def test_each_platform_has_a_lock_of_the_pinned_versions(python: str, machine: str) -> None:
    environment = web.web_environment(python, machine, str(LOCKS))

    pinned = {each.replace("-", "_").replace("==", "-") for each in VERSIONS["deepops_web"]["packages"]}
    assert pinned <= {"-".join(file.split("-")[:2]) for file in environment["wheels"]}
    assert environment["version"] == VERSIONS["deepops_web"]["release"]
    assert environment["interpreter"] == f"/usr/bin/python{python}"


def test_the_host_signs_notebooks_with_an_authority_that_nothing_else_trusts() -> None:
    secret = new_authority(date.today())

    files = web.web_certificates(secret, "login1", "192.0.2.5", "/etc/web")

    by_path = {file["path"]: file for file in files["host"]}
    key = base64.b64decode(by_path["/etc/web/notebooks.key"]["secret_base64"]).decode()
    trusted = x509.load_pem_x509_certificate(by_path["/etc/web/notebooks.crt"]["content"].encode())
    assert key not in (Authority(secret).key, "")
    assert trusted.subject != x509.load_pem_x509_certificate(Authority(secret).certificate.encode()).subject
    # what comes to nodes that run notebooks has no key at all
    assert [file["path"] for file in files["node"]] == ["/etc/web/notebooks.crt"]
    internal = x509.load_pem_x509_certificate(by_path["/etc/web/hub.crt"]["content"].encode())
    internal.verify_directly_issued_by(trusted)
    assert isinstance(trusted.public_key(), ec.EllipticCurvePublicKey)


def test_keys_are_secret_and_of_those_who_need_them() -> None:
    files = web.web_certificates(new_authority(date.today()), "login1", "192.0.2.5", "/etc/web")["host"]

    modes = {file["path"].rpartition("/")[2]: file["mode"] for file in files if "secret_base64" in file}
    assert modes == {"public.pem": "0600", "hub.pem": "0600", "hub.key": "0640", "notebooks.key": "0640"}
    assert not [file for file in files if "PRIVATE" in file.get("content", "")]


def test_an_environment_with_ipykernel_is_a_kernel() -> None:
    versions = [
        {"name": "dl", "version": "2026.11", "wheels": {"ipykernel-7.1.0-py3-none-any.whl": ""}},
        {"name": "plain", "version": "2026.11", "wheels": {"numpy-2.4.0-cp313-cp313-linux_x86_64.whl": ""}},
    ]

    assert [each["dest"] for each in web.web_kernels(versions, "/kernels")] == ["/kernels/dl-2026.11/kernel.json"]


def test_the_password_of_prometheus_is_for_root_and_in_no_other_file() -> None:
    role = ROOT / "roles/web"
    own = yaml.safe_load((role / "vars/main.yml").read_text(encoding="utf-8"))

    template = own["__web_monitoring_template"]
    assert (template["mode"], template["secret"], "owner" in template, "group" in template) == (
        "0600", True, False, False,
    )  # fmt: skip
    having = [path.name for path in role.rglob("templates/*") if "web_prometheus_password" in path.read_text("utf-8")]
    assert having == [template["src"]]


def test_users_read_the_packages_of_an_environment() -> None:
    versions = [
        {
            "name": "dl",
            "version": "2026.12",
            "wheels": {"ipykernel-7.1.0-py3-none-any.whl": "", "a_b-2-py3-none-any.whl": ""},
        }
    ]

    (shown,) = web.web_software(versions)

    assert shown == {"name": "dl", "version": "2026.12", "packages": ["a-b 2", "ipykernel 7.1.0"], "kernel": True}
