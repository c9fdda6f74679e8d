"""Which account an identity provider's claims are about."""

from __future__ import annotations

from typing import Any

import pytest

from deepopsctl.node_programs.services.web.identity import account_of
from deepopsctl.node_programs.services.web.offer import RefusedError

SITE: dict[str, Any] = {
    "username_claim": "preferred_username", "domain": "", "refused": ["root"], "groups": [], "groups_claim": "groups",
}  # fmt: skip


@pytest.mark.parametrize(
    ("rules", "claims"),
    [
        ({}, {"preferred_username": "alice"}),
        ({"username_claim": "hpc.account"}, {"hpc": {"account": "alice"}}),
        ({"username_claim": "https://example.com/uid"}, {"https://example.com/uid": "alice"}),
        ({"username_claim": "email", "domain": "example.com"}, {"email": "alice@Example.com", "email_verified": True}),
        ({"groups": ["hpc"]}, {"preferred_username": "alice", "groups": ["staff", "hpc"]}),
        ({"groups": ["hpc"]}, {"preferred_username": "alice", "groups": "hpc"}),
        (
            {"groups": ["hpc"], "groups_claim": "realm_access.roles"},
            {"preferred_username": "alice", "realm_access": {"roles": ["hpc"]}},
        ),
    ],
)
def test_the_name_is_that_of_the_claim(rules: dict[str, Any], claims: dict[str, Any]) -> None:
    assert account_of(claims, {**SITE, **rules}) == "alice"


@pytest.mark.parametrize(
    ("rules", "claims", "text"),
    [
        ({}, {}, "sends no preferred_username"),
        ({}, {"preferred_username": ""}, "sends no preferred_username"),
        ({}, {"preferred_username": {"alice": 1}}, "sends no preferred_username"),
        ({}, {"preferred_username": "root"}, "by a link only"),
        ({"username_claim": "email"}, {"email": "alice@example.com"}, "not verified"),
        ({"username_claim": "email"}, {"email": "alice@example.com", "email_verified": "true"}, "not verified"),
        ({"domain": "example.com"}, {"preferred_username": "alice@example.org"}, "not a name of"),
        ({"domain": "example.com"}, {"preferred_username": "alice"}, "not a name of"),
        ({"domain": "example.com"}, {"preferred_username": "@example.com"}, "not a name of"),
        ({"domain": "example.com"}, {"preferred_username": "root@example.com"}, "by a link only"),
        ({"groups": ["hpc"]}, {"preferred_username": "alice"}, "none of the groups"),
        ({"groups": ["hpc"]}, {"preferred_username": "alice", "groups": ["hpc2", ["hpc"], None]}, "none of the groups"),
        ({"groups": ["hpc"]}, {"preferred_username": "alice", "groups": {"hpc": True}}, "none of the groups"),
    ],
)
def test_who_is_refused_reads_why(rules: dict[str, Any], claims: dict[str, Any], text: str) -> None:
    with pytest.raises(RefusedError, match=text):
        account_of(claims, {**SITE, **rules})
