"""Login tokens (SASL/OAUTHBEARER) for kafka-python, as the sink's `oauth_cb` returns them."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from kafka.net.sasl.oauth import AbstractTokenProvider

from exactly_once_kafka.tokens import KeptToken, Token


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python comes without types
    """Tokens of `oauth_cb`, which is told `config`. Tasks take it along, with the token that the driver has.

    Its text is the same in every copy, and has no token in it.
    """

    def __init__(self, oauth_cb: Callable[[str], Token], config: str):
        self._oauth_cb, self._config = oauth_cb, config
        self._name = uuid.uuid4().hex

    def token(self) -> str:
        return str(self._oauth_cb(self._config)[0])

    def extensions(self) -> dict[str, str]:
        """Return the fourth of (token, expiry, principal, extensions), which may end earlier."""
        token = self._oauth_cb(self._config)
        return dict(token[3] or {}) if len(token) > 3 else {}

    def renew(self, taken_along: TokenProvider) -> None:
        """Take the token that a later task has brought from the driver, if it is good for longer."""
        if isinstance(self._oauth_cb, KeptToken) and isinstance(taken_along._oauth_cb, KeptToken):
            self._oauth_cb.renew(taken_along._oauth_cb)

    def __repr__(self) -> str:
        return f"tokens {self._name}"
