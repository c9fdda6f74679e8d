"""Which account the claims of an identity provider are about, by the site's rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .offer import RefusedError


def account_of(claims: Mapping[str, Any], site: Mapping[str, Any]) -> str:
    """The name; whether it is an account here is not looked at. Raises RefusedError with a text for the user."""
    claim = site["username_claim"]
    name = _at(claims, claim)
    if not isinstance(name, str) or not name:
        raise RefusedError(f"the identity provider does not tell your name here: it sends no {claim}")
    if claim == "email" and claims.get("email_verified") is not True:
        raise RefusedError("the identity provider has not verified your e-mail address")
    if site["domain"]:
        name, _, domain = name.rpartition("@")
        if domain.lower() != site["domain"].lower() or not name:
            raise RefusedError(f"this is not a name of {site['domain']}")
    if name in site["refused"]:
        raise RefusedError(f"{name} logs in by a link only, with an SSH key")
    if site["groups"] and not set(site["groups"]) & _groups(_at(claims, site["groups_claim"])):
        raise RefusedError("you are in none of the groups that may log in here: ask your administrators")
    return name


def _groups(value: object) -> set[str]:
    """One name or several: providers send both."""
    values = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return {each for each in values if isinstance(each, str)}


def _at(claims: Mapping[str, Any], claim: str) -> object:
    """A claim by its name; `realm_access.roles` where no claim has the whole name."""
    if claim in claims:
        return claims[claim]
    value: object = claims
    for part in claim.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
