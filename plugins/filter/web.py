"""What the role `web` gets: certificates, pages, kernels, and the environment of Python packages that is locked."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.deepopsctl.cluster.plugins.plugin_utils.filters import filters_of

from deepopsctl.certificates import validity
from deepopsctl.certificates.authority import Authority
from deepopsctl.environment import environments, ondemand
from deepopsctl.errors import DeepOpsError

# who signs the notebooks of this cluster, and nothing else
PURPOSE = "notebooks"


def web_certificates(authority: object, host: str, address: object, directory: str) -> dict[str, list[dict[str, Any]]]:
    """Files of the host, and those of nodes with notebooks, for node_state.

    The host signs notebooks itself, when their jobs have begun: it has the key of an authority of this one purpose.
    """
    signer = Authority(str(authority))
    notebooks = signer.derived(PURPOSE)
    day = validity.today()
    public, internal = (each.identify(host, [str(address)], day) for each in (signer, notebooks))
    trusted = {"path": f"{directory}/notebooks.crt", "content": notebooks.certificate}
    of_hub = {"owner": "root", "group": "haproxy", "mode": "0640"}
    secrets = {
        # what the browser gets: the authority's certificate is for who has to trust it
        "public.pem": (public.certificate + signer.certificate + public.key, {"mode": "0600"}),
        "hub.pem": (internal.certificate + internal.key, {"mode": "0600"}),
        "hub.key": (internal.key, of_hub),
        "notebooks.key": (notebooks.key, of_hub),
    }
    host_files = [
        {"path": f"{directory}/{name}", "secret_base64": base64.b64encode(text.encode()).decode(), **more}
        for name, (text, more) in secrets.items()
    ]
    own = {"path": f"{directory}/hub.crt", "content": internal.certificate}
    public_authority = {"path": f"{directory}/authority.crt", "content": signer.certificate}
    return {"host": [trusted, own, public_authority, *host_files], "node": [trusted]}


def web_public_certificate(authority: object, host: str, address: object, directory: str) -> list[dict[str, Any]]:
    """What browsers get of a host, for node_state: a certificate of the cluster's authority with its key."""
    signer = Authority(str(authority))
    public = signer.identify(host, [str(address)], validity.today())
    secret = base64.b64encode((public.certificate + signer.certificate + public.key).encode()).decode()
    return [
        {"path": f"{directory}/public.pem", "secret_base64": secret, "mode": "0600"},
        {"path": f"{directory}/authority.crt", "content": signer.certificate},
    ]


def ondemand_portal(site: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of Open OnDemand's ood_portal.yml."""
    try:
        return ondemand.portal(site)
    except DeepOpsError as error:
        raise AnsibleFilterError(str(error)) from error


def web_pages(names: Iterable[str], source: str, destination: str) -> list[dict[str, str]]:
    """Files as they are, for node_state."""
    return [
        {"path": f"{destination}/{name}", "content": Path(source, name).read_text(encoding="utf-8")} for name in names
    ]


def web_kernels(versions: Iterable[Mapping[str, Any]], directory: str) -> list[dict[str, Any]]:
    """A kernel for each version of the site's environments that has one, as templates of node_state."""
    return [
        {
            "src": "kernel.json.j2",
            "dest": f"{directory}/{each['name']}-{each['version']}/kernel.json",
            "vars": {"kernel": {"name": each["name"], "version": each["version"]}},
        }
        for each in versions
        if any(file.startswith("ipykernel-") for file in each["wheels"])
    ]


def web_software(versions: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What users read of each version of the site's environments: its packages, and whether it is a kernel."""
    return [
        {
            "name": each["name"],
            "version": each["version"],
            "packages": sorted({" ".join(file.split("-")[:2]).replace("_", "-") for file in each["wheels"]}),
            "kernel": any(file.startswith("ipykernel-") for file in each["wheels"]),
        }
        for each in versions
    ]


def web_environment(python: object, machine: object, directory: str) -> dict[str, Any]:
    """The environment for a node with this Python and processor, by the locks of the role."""
    try:
        locks = environments.read_locks(Path(directory, f"{python}-{machine}"))
        if not locks:
            raise AnsibleFilterError(f"there are no notebooks for Python {python} on {machine}")
        return environments.of_lock(locks[0])
    except DeepOpsError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """Registers the filters."""

    def filters(self) -> dict[str, Any]:
        """Name -> function."""
        return filters_of(globals())
