"""Open OnDemand's portal: ood_portal.yml of what a site says and of the cluster's nodes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

from ..errors import DeepOpsError

# what a value may hold that becomes a part of an Apache directive
_PLAIN = re.compile(r"[A-Za-z0-9_.:/@~+=, -]*")
_SECRET = re.compile(r"[!-~]*")
# Lua's: a letter first, for a number would be taken for the id of an account
_NAME = "[A-Za-z_][A-Za-z0-9_.-]*"


def portal(site: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of ood_portal.yml. Raises DeepOpsError with all that is wrong."""
    problems = _problems(site)
    if problems:
        raise DeepOpsError("; ".join(problems))
    server = urlsplit(site["url"]).hostname if site["url"] else site["host"]
    login = _provider(site, server) if site["issuer"] else {"dex": dict(site["dex"]), "auth": _AUTH}
    return {
        "servername": server,
        "ssl": [f'SSLCertificateFile "{site["certificate"]}"'],
        "node_uri": "/node",
        "rnode_uri": "/rnode",
        "host_regex": _any_of(site["compute"]),
        "user_map_match": _mapped(site["domain"]),
        "pun_stage_cmd": f"sudo {site['stage']}",
        **login,
        **site["more"],
    }


_AUTH = ["AuthType openid-connect", "Require valid-user"]


def _provider(site: Mapping[str, Any], server: str) -> dict[str, Any]:
    """Login by the site's identity provider."""
    settings = {"OIDCResponseType": "code", "OIDCPKCEMethod": "S256", "OIDCPassClaimsAs": "environment"}
    if site["ca"]:
        settings["OIDCCABundlePath"] = site["ca"]
    return {
        "dex": False,
        "auth": _rules(site),
        "logout_redirect": "/oidc?logout=" + quote(f"https://{server}", safe=""),
        "oidc_uri": "/oidc",
        "oidc_provider_metadata_url": site["issuer"].rstrip("/") + "/.well-known/openid-configuration",
        "oidc_client_id": site["client_id"],
        "oidc_client_secret": f'"{site["client_secret"]}"',
        "oidc_remote_user_claim": site["username_claim"],
        "oidc_scope": " ".join(site["scopes"]),
        # as secret as what it comes from, and the same at each deploy
        "oidc_crypto_passphrase": hashlib.sha256(f"cookies {site['client_secret']}".encode()).hexdigest(),
        "oidc_settings": settings,
    }


def _rules(site: Mapping[str, Any]) -> list[str]:
    """Who may come in. Apache lets in whom one of several `Require` lets in, unless they are grouped."""
    lines = ["Require valid-user"]
    if site["username_claim"] == "email":
        lines.append("Require claim email_verified:true")
    if site["groups"]:
        claim = site["groups_claim"]
        lines += ["<RequireAny>", *(f'Require claim "{claim}:{group}"' for group in site["groups"]), "</RequireAny>"]
    return _AUTH if len(lines) == 1 else [_AUTH[0], "<RequireAll>", *lines, "</RequireAll>"]


def _mapped(domain: str) -> str:
    """Lua's pattern of the account in the provider's name."""
    escaped = re.sub(r"([^A-Za-z0-9])", r"%\1", domain)
    return f"^({_NAME})@{escaped}$" if domain else f"^{_NAME}$"


def _any_of(names: Sequence[str]) -> str:
    return "(?:" + "|".join(re.escape(name).replace("\\-", "-") for name in names) + ")"


def _problems(site: Mapping[str, Any]) -> list[str]:
    problems = []
    if not site["issuer"] and not site["dex"]:
        problems.append("Open OnDemand needs a login: set web_oidc_issuer, or ondemand_dex")
    if site["issuer"] and site["dex"]:
        problems.append("web_oidc_issuer and ondemand_dex exclude each other")
    if site["url"] and (urlsplit(site["url"]).scheme != "https" or urlsplit(site["url"]).port not in (None, 443)):
        problems.append("ondemand_url has to be https://NAME")
    if "." in site["username_claim"] and site["issuer"]:
        problems.append(f"web_oidc_username_claim: Apache takes no nested claim such as {site['username_claim']}")
    words = {
        "web_oidc_issuer": site["issuer"],
        "web_oidc_client_id": site["client_id"],
        "web_oidc_username_claim": site["username_claim"],
        "web_oidc_groups_claim": site["groups_claim"],
        "web_oidc_ca": site["ca"],
        "ondemand_tls_certificate": site["certificate"],
        **{f"web_oidc_groups[{place}]": group for place, group in enumerate(site["groups"])},
        **{f"web_oidc_scopes[{place}]": scope for place, scope in enumerate(site["scopes"])},
    }
    problems += [f"{name}: Apache can't have {value!r}" for name, value in words.items() if not _PLAIN.fullmatch(value)]
    secret = site["client_secret"]
    if not _SECRET.fullmatch(secret) or set(secret) & set('"\\$%'):
        problems.append('web_oidc_client_secret: Apache takes no space and none of " \\ $ % in it')
    return problems
