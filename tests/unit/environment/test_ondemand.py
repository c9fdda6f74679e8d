"""ood_portal.yml: keys that Open OnDemand's generator reads, and no value that becomes another directive of Apache."""

from __future__ import annotations

from typing import Any

import pytest
from lupa import LuaRuntime

from deepopsctl.environment import ondemand
from deepopsctl.errors import DeepOpsError

SITE: dict[str, Any] = {
    "host": "login2", "url": "", "certificate": "/etc/deepopsctl/ondemand/public.pem", "stage": "/usr/local/sbin/stage",
    "compute": ["gpu01", "gpu02"], "issuer": "https://sso.example.com/realms/hpc", "client_id": "hpc",
    "client_secret": "a+b=", "scopes": ["openid", "profile"], "username_claim": "preferred_username", "domain": "",
    "groups": [], "groups_claim": "groups", "ca": "", "dex": {}, "more": {},
}  # fmt: skip
# what the generator of release 4.2 reads, of the keys that are written here or by a site most often
KNOWN = frozenset({
    "auth", "dex", "host_regex", "listen_addr_port", "logout_redirect", "lua_log_level", "node_uri", "oidc_client_id",
    "oidc_client_secret", "oidc_crypto_passphrase", "oidc_provider_metadata_url", "oidc_remote_user_claim",
    "oidc_scope", "oidc_settings", "oidc_uri", "port", "pun_stage_cmd", "rnode_uri", "server_aliases", "servername",
    "ssl", "user_map_match",
})  # fmt: skip


def matched(pattern: str, name: str) -> object:
    """What mod_ood_proxy makes of a name: Lua's string.match."""
    return LuaRuntime().eval("function(name, pattern) return string.match(name, pattern) end")(name, pattern)


@pytest.mark.parametrize("rules", [{}, {"groups": ["hpc"], "ca": "/etc/ssl/x.pem"}, {"issuer": "", "dex": {"x": 1}}])
def test_it_writes_keys_that_the_generator_reads(rules: dict[str, Any]) -> None:
    made = ondemand.portal({**SITE, **rules})

    assert set(made) <= KNOWN
    assert made["servername"] == "login2"
    assert made["host_regex"] == "(?:gpu01|gpu02)"


def test_without_an_own_rule_who_has_an_account_comes_in() -> None:
    assert ondemand.portal(SITE)["auth"] == ["AuthType openid-connect", "Require valid-user"]


def test_rules_are_all_asked_and_one_group_is_enough() -> None:
    made = ondemand.portal({**SITE, "username_claim": "email", "groups": ["hpc", "staff"]})

    assert made["auth"] == [
        "AuthType openid-connect", "<RequireAll>", "Require valid-user", "Require claim email_verified:true",
        "<RequireAny>", 'Require claim "groups:hpc"', 'Require claim "groups:staff"', "</RequireAny>", "</RequireAll>",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("domain", "name", "account"),
    [
        ("", "alice", "alice"),
        ("", "x.y-z", "x.y-z"),
        # the portal would take it for an id, 0 for root
        ("", "0", None),
        ("", "2001", None),
        ("", "alice@example.com", None),
        ("", "../alice", None),
        ("", "alice\nroot", None),
        ("example.com", "alice@example.com", "alice"),
        ("example.com", "alice@exampleXcom", None),
        ("example.com", "alice@example.com.evil.org", None),
        ("example.com", "0@example.com", None),
        ("ex-ample.com", "alice@ex-ample.com", "alice"),
        ("example.com", "alice", None),
    ],
)
def test_a_name_is_mapped_to_the_account_that_it_is(domain: str, name: str, account: str | None) -> None:
    assert matched(ondemand.portal({**SITE, "domain": domain})["user_map_match"], name) == account


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ({"issuer": ""}, "needs a login"),
        ({"dex": {"x": 1}}, "exclude each other"),
        ({"url": "https://a.example.com:8443"}, "ondemand_url"),
        ({"url": "http://a.example.com"}, "ondemand_url"),
        ({"username_claim": "hpc.account"}, "nested"),
        ({"groups": ['hpc"\nRequire all granted']}, "web_oidc_groups"),
        ({"scopes": ["openid\nSetEnv x"]}, "web_oidc_scopes"),
        ({"client_id": "x\nRequire all granted"}, "web_oidc_client_id"),
        ({"client_secret": 'x" y'}, "web_oidc_client_secret"),
        ({"client_secret": "x\nRequire"}, "web_oidc_client_secret"),
    ],
)
def test_what_apache_can_not_have_is_refused(rules: dict[str, Any], text: str) -> None:
    with pytest.raises(DeepOpsError, match=text) as error:
        ondemand.portal({**SITE, **rules})

    assert "Require" not in str(error.value) or "client_secret" not in text
