"""Login tokens (SASL/OAUTHBEARER), kept until shortly before they expire, or until Kafka refuses one.

If the driver writes, every micro-batch has a producer of its own, and each would ask the identity provider for a token.
Here all clients of a sink share one token: the one that `oauth_cb` returns, or the one that
`sasl_oauthbearer_method="oidc"` fetches with a client's id and secret.

Limitations: for other kinds of OIDC grants librdkafka asks for the tokens itself, one for each producer.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ssl
    import urllib.request

Token = tuple[Any, ...]  # the token, when it expires (seconds since 1970), and perhaps principal and extensions
REST = 0.2  # share of a token's life that is left when another is requested, as in librdkafka
RETRY = 10  # seconds until another request, after one that failed
PATIENCE = 30  # seconds for the identity provider to answer

OF_OIDC = "sasl.oauthbearer."
UNDERSTOOD = {"method", "client.id", "client.secret", "token.endpoint.url", "scope", "extensions"}


class KeptToken:
    """An `oauth_cb` that keeps its token. It calls `fetch` only if the token will expire soon, or Kafka refused it.

    If `fetch` fails and the token has not expired, the token is used for RETRY seconds more, and so on.
    """

    def __init__(self, fetch: Callable[[str], Token]):
        self._fetch, self._lock = fetch, threading.Lock()
        self._token: Token = ()
        self._good_until = 0.0
        self._refused = 0  # how many tokens Kafka has refused

    def __call__(self, config: str) -> Token:
        with self._lock:
            if (now := time.time()) < self._good_until:
                return self._token
            try:
                token = self._fetch(config)
                expires = float(token[1])
            except Exception:
                if not self._token or now >= float(self._token[1]):
                    raise
                self._good_until = min(float(self._token[1]), now + RETRY)
                return self._token
            self._token, self._good_until = token, expires - REST * (expires - time.time())
            return self._token

    def forget(self) -> None:
        """Request another token at the next call, since Kafka has refused this one."""
        with self._lock:
            self._token, self._good_until = (), 0.0
            self._refused += 1

    def renew(self, other: KeptToken) -> None:
        """Take the token of `other`, a newer copy of this object, if it is better than this one.

        It is better if it expires later, or if `other` was copied after Kafka refused a token.
        """
        with self._lock:
            if other._refused > self._refused or other._good_until > self._good_until:
                self._token, self._good_until = other._token, other._good_until
                self._refused = max(other._refused, self._refused)

    def __getstate__(self) -> dict[str, Any]:
        """Return what is sent to an executor. The token is part of it, so the executor need not request one."""
        with self._lock:
            return {key: value for key, value in vars(self).items() if key != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())


def with_kept_tokens(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings, with a KeptToken as `oauth_cb` if they log in with tokens that can be kept.

    Raises ValueError if `oauth_cb` is not a function, OSError if a certificate for the identity provider is not usable.
    """
    if "oauth_cb" in settings:
        if not callable(settings["oauth_cb"]):
            raise ValueError("oauth_cb must be a function: of the config to (token, expiry in seconds since 1970)")
        return settings | {"oauth_cb": KeptToken(settings["oauth_cb"])}
    oidc = {key.removeprefix(OF_OIDC): value for key, value in settings.items() if key.startswith(OF_OIDC)}
    by_secret = {"client.id", "client.secret", "token.endpoint.url"} <= oidc.keys() <= UNDERSTOOD
    if oidc.get("method") != "oidc" or not by_secret:
        return settings
    left = {key: value for key, value in settings.items() if not key.startswith(OF_OIDC)}
    # librdkafka no longer makes the request itself, so it does not need the certificates for it.
    left = {key: value for key, value in left.items() if not key.startswith("https.")}
    authority = {"cafile": settings.get("https.ca.location"), "cadata": settings.get("https.ca.pem")}
    if authority["cafile"] == "probe":
        authority["cafile"] = None
    _trusting(authority)  # a wrong certificate fails here, and not in the first batch
    return left | {"oauth_cb": KeptToken(lambda _: _ask(oidc, authority))}


def by_token(settings: dict[str, Any]) -> bool:
    """Tell whether the settings log in with tokens, from any source."""
    mechanism = settings.get("sasl.mechanism") or settings.get("sasl.mechanisms")
    return str(mechanism).upper() == "OAUTHBEARER"


def forget_refused(settings: dict[str, Any]) -> None:
    """Request another token at the next login, if these settings keep one."""
    if isinstance(kept := settings.get("oauth_cb"), KeptToken):
        kept.forget()


def _trusting(authority: dict[str, Any]) -> ssl.SSLContext:
    import ssl  # here, because most sinks log in without tokens

    return ssl.create_default_context(**authority)


def _ask(oidc: dict[str, str], authority: dict[str, Any]) -> Token:
    """Fetch a token with the client's id and secret (RFC 6749, 4.4). Raises OSError, ValueError."""
    import urllib.parse
    import urllib.request

    form = {"grant_type": "client_credentials"} | ({"scope": oidc["scope"]} if oidc.get("scope") else {})
    credentials = ":".join(urllib.parse.quote(str(oidc[key]), safe="") for key in ("client.id", "client.secret"))
    request = urllib.request.Request(
        oidc["token.endpoint.url"],
        data=urllib.parse.urlencode(form).encode(),
        headers={
            "Authorization": "Basic " + base64.b64encode(credentials.encode()).decode(),
            "Accept": "application/json",
        },
    )
    # Without redirects: a request to another place would take the client's secret there.
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=_trusting(authority)), _no_redirects())
    with opener.open(request, timeout=PATIENCE) as answer:
        token = json.load(answer)["access_token"]
    claims = _claims(token)
    extensions = dict(pair.split("=", 1) for pair in oidc.get("extensions", "").split(",") if pair)
    return token, float(claims["exp"]), claims.get("sub", ""), extensions


def _no_redirects() -> urllib.request.HTTPRedirectHandler:
    import urllib.request

    class NoRedirects(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    return NoRedirects()


def _claims(token: str) -> dict[str, Any]:
    payload = token.split(".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return claims
