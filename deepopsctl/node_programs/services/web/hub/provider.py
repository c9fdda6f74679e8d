"""Login by the site's identity provider (OpenID Connect): it says who sits at a browser.

Whether that name is an account here, and may log in, is asked of the agent as for each other login.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from pathlib import Path
from typing import Any

import jwt
from oauthenticator.oauth2 import OAuthCallbackHandler, OAuthenticator, OAuthLoginHandler, _deserialize_state
from tornado import web
from tornado.httpclient import HTTPError

from .. import identity
from ..offer import RefusedError
from .proved import Proved

CALLBACK = "/hub/oauth_callback"
# how old the provider's addresses and keys may be, and how soon keys are asked for again for one that is not among them
FRESH_S, SOON_S = 3600.0, 60.0
# none, and none with a shared secret, is among them
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")
# seconds by which clocks may differ
_LEEWAY_S = 60
# what asking a provider raises: no connection, another status, JSON that is none, a key that is none
FAILURES = (HTTPError, web.HTTPError, OSError, ValueError, KeyError, TypeError, AttributeError, jwt.PyJWTError)
_NO_ANSWER = "the identity provider does not answer as it should: try again, or log in by a link"


class Provider(OAuthenticator):
    """One provider. OAuthenticator does the code flow with PKCE; this adds what OpenID Connect has on top."""

    def __init__(self, site: dict[str, Any], secret: str, **arguments: Any) -> None:
        self.site = site
        super().__init__(**arguments)
        self.client_id, self.client_secret = site["client_id"], secret
        self.scope = site["scopes"]
        self.oauth_callback_url = site["url"] + CALLBACK
        trusted = {"ca_certs": site["ca"]} if site["ca"] else {}
        self.http_request_kwargs = {
            "connect_timeout": 10, "request_timeout": 20, "follow_redirects": False, **trusted
        }  # fmt: skip
        self._metadata: dict[str, Any] = {}
        self._keys: list[Any] = []
        self._read_at = self._keys_at = float("-inf")
        self._turns = asyncio.Semaphore(16)

    async def discover(self) -> None:
        """Know the provider's addresses and keys. Raises what asking raises, and ValueError."""
        if time.monotonic() - self._read_at < FRESH_S:
            return
        issuer, addresses = self.site["issuer"], dict(self.site["endpoints"])
        if not all(addresses.get(name) for name in _ENDPOINTS):
            address = issuer.rstrip("/") + "/.well-known/openid-configuration"
            published = await self.httpfetch(address, "reading the identity provider's addresses")
            if published.get("issuer") != issuer:
                raise ValueError(f"{address} is of the issuer {str(published.get('issuer'))[:200]!r}")
            addresses = {**published, **addresses}
        for name in (*_ENDPOINTS, "userinfo_endpoint"):
            address = addresses.get(name, "")
            if not str(address).startswith("https://") and (address or name in _ENDPOINTS):
                raise ValueError(f"the identity provider's {name} does not begin with https://")
        self._metadata = addresses
        self.authorize_url, self.token_url = addresses["authorization_endpoint"], addresses["token_endpoint"]
        self.userdata_url = addresses.get("userinfo_endpoint", "")
        # without the list it is basic, by the standard
        self.basic_auth = "client_secret_post" not in addresses.get("token_endpoint_auth_methods_supported", ())
        await self._read_keys()
        self._read_at = time.monotonic()

    async def _read_keys(self) -> None:
        shown = await self.httpfetch(self._metadata["jwks_uri"], "reading the identity provider's keys")
        self._keys = jwt.PyJWKSet.from_dict(shown).keys
        self._keys_at = time.monotonic()

    async def name_of(self, handler: Any, nonce: str) -> str:
        """Who has come back from the provider with a code. Raises RefusedError, and what asking raises."""
        async with self._turns:
            await self.discover()
            tokens = await self.get_token_info(handler, self.build_access_tokens_request_params(handler))
            claims = await self._verified(str(tokens.get("id_token", "")), nonce)
            if self.userdata_url:
                more = await self.token_to_user({"token_type": "Bearer", **tokens})
                if more.get("sub") != claims["sub"]:
                    raise RefusedError("the identity provider's answers are about two people")
                claims = {**more, **claims}
        return identity.account_of(claims, self.site)

    async def _verified(self, token: str, nonce: str) -> dict[str, Any]:
        """What an ID token says, if the provider has signed it, for this hub and this login."""
        try:
            key = await self._key_of(jwt.get_unverified_header(token))
            claims: dict[str, Any] = jwt.decode(
                token, key, algorithms=_ALGORITHMS, audience=self.client_id, issuer=self.site["issuer"],
                leeway=_LEEWAY_S, options={"require": ["exp", "iat", "iss", "aud", "sub"]},
            )  # fmt: skip
        except jwt.PyJWTError as error:
            raise RefusedError(f"the identity provider's token is not valid: {type(error).__name__}") from error
        if claims.get("nonce") != nonce:
            raise RefusedError("the identity provider's token is not of this login")
        if "azp" in claims and claims["azp"] != self.client_id:
            raise RefusedError("the identity provider's token is for another application")
        return claims

    async def _key_of(self, header: dict[str, Any]) -> Any:
        key = self._find(header)
        if key is None and time.monotonic() - self._keys_at > SOON_S:
            await self._read_keys()
            key = self._find(header)
        if key is None:
            raise jwt.InvalidKeyError("it is not signed by a key of the provider's")
        return key

    def _find(self, header: dict[str, Any]) -> Any:
        signing = [key for key in self._keys if key.public_key_use in (None, "sig")]
        named = [key for key in signing if key.key_id == header.get("kid")]
        return named[0] if named else signing[0] if len(signing) == 1 and "kid" not in header else None


def load(site: dict[str, Any]) -> Provider | None:
    """That of the settings; None without one."""
    settings = site.get("oidc")
    if not settings:
        return None
    secret = Path(settings["secret_file"]).read_text(encoding="utf-8").strip()
    return Provider({**settings, "url": site["url"]}, secret)


class StartHandler(OAuthLoginHandler):
    """Sends the browser to the provider."""

    _state_id = ""
    _starts = False

    @property
    def authenticator(self) -> Any:
        """JupyterHub's; the provider while OAuthenticator's own code reads its settings."""
        whole = super().authenticator
        return whole.provider if self._starts else whole

    async def get(self) -> None:
        """With a state and a nonce of this login."""
        try:
            await self.authenticator.provider.discover()
        except FAILURES as error:
            raise _silent(self, error) from error
        self._starts = True
        try:
            super().get()
        finally:
            self._starts = False

    def _generate_state_id(self) -> str:
        self._state_id = super()._generate_state_id()
        return self._state_id

    def authorize_redirect(self, *arguments: Any, **named: Any) -> None:
        """As OAuthenticator does, and with the nonce."""
        named["extra_params"] = {**named["extra_params"], "nonce": _nonce(self._state_id)}
        super().authorize_redirect(*arguments, **named)


class ReturnHandler(OAuthCallbackHandler):
    """Takes the browser back."""

    def check_arguments(self) -> None:
        """First, whether it is this browser that was sent; what the address says of errors is not shown."""
        try:
            self.check_state()
        except web.HTTPError as error:
            raise web.HTTPError(400, "this login was begun elsewhere, or too long ago: log in again") from error
        if self.get_argument("error", ""):
            raise web.HTTPError(403, "the identity provider has refused the login")
        self.check_code()

    async def get(self) -> None:
        """Log in who the provider says it is."""
        self.set_header("Referrer-Policy", "no-referrer")
        self.set_header("Cache-Control", "no-store")
        self.check_arguments()
        state = _deserialize_state(self.get_state_cookie())
        try:
            name = await self.authenticator.provider.name_of(self, _nonce(state["state_id"]))
        except RefusedError as error:
            self.log.info("audit: login refused by=provider address=%s: %s", self.request.remote_ip, error)
            raise web.HTTPError(403, str(error)) from error
        except FAILURES as error:
            raise _silent(self, error) from error
        # as for a link: the agent says whether the account is there, and open
        entered = await self.login_user(Proved(username=name, way="provider"))
        if entered is None:
            raise web.HTTPError(403, f"{name[:64]!r} is not the name of an account that may log in here")
        self._jupyterhub_user = entered
        self.redirect(self.get_next_url(entered))


def _silent(handler: Any, error: Exception) -> web.HTTPError:
    """What a user reads when the provider fails; the log has more."""
    handler.log.warning("the identity provider: %s: %s", type(error).__name__, str(error)[:300])
    return web.HTTPError(503, _NO_ANSWER)


def _nonce(state_id: str) -> str:
    return hashlib.sha256(b"nonce " + state_id.encode()).hexdigest()


HANDLERS = [("/oauth_login", StartHandler), ("/oauth_callback", ReturnHandler)]
