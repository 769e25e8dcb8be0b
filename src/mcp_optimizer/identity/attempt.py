"""One attempt to log in: the address for the browser, and what may come back from it.

The verifier and the state live in this object, in memory, and end with it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlencode, urlsplit

from mcp_optimizer.identity.client_ids import ClientId
from mcp_optimizer.identity.provider import Provider
from mcp_optimizer.identity.web import LoginFailed, error_word

_LONGEST_REDIRECT = 20_000
_COPY = "begin again, and copy the whole address of the page that the browser ends at"


class NotAwaited(LoginFailed):
    """An answer to no login that is under way here: an old one, or somebody else's."""


@dataclass(frozen=True)
class Attempt:
    """What was asked of the authorization server."""

    provider: Provider
    client: ClientId
    redirect_uri: str
    scopes: tuple[str, ...]
    state: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(64), repr=False)

    @property
    def address(self) -> str:
        """Where a person logs in."""
        digest = hashlib.sha256(self.verifier.encode()).digest()
        asked = {
            "response_type": "code",
            "client_id": self.client.client_id,
            "redirect_uri": self.redirect_uri,
            "state": self.state,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
            "resource": self.provider.resource,
        }
        if self.scopes:
            asked["scope"] = " ".join(self.scopes)
            if "offline_access" in self.scopes:
                # OpenID providers give a refresh token only after asking the person.
                asked["prompt"] = "consent"
        endpoint = self.provider.authorization_endpoint
        return f"{endpoint}{'&' if urlsplit(endpoint).query else '?'}{urlencode(asked)}"

    def code_in(self, redirect: str) -> str:
        """The code in the address that the browser was sent back to; raises `LoginFailed` if it may not be used."""
        given = parameters(redirect)
        if "response_type" in given:
            raise LoginFailed(f"that is the address to log in at, not the one that the browser was sent to: {_COPY}")
        if "state" not in given:
            raise LoginFailed(f"that is not an address that a login ends at (it has no state): {_COPY}")
        if not hmac.compare_digest(given.get("state", "").encode(), self.state.encode()):
            raise LoginFailed(f"the address is of another login (its state does not match): {_COPY}")
        issuer = given.get("iss")
        if issuer is not None and issuer != self.provider.issuer:
            raise LoginFailed("the answer is from another authorization server (its iss does not match); do not use it")
        if issuer is None and self.provider.says_issuer:
            raise LoginFailed("the answer does not name its authorization server, although that promised to (no iss)")
        if error := given.get("error"):
            advice = "begin again, and allow it" if error == "access_denied" else "begin again"
            raise LoginFailed(
                f"the authorization server refused the login ({error_word(error, 'no readable reason')}): {advice}"
            )
        if not (code := given.get("code")):
            raise LoginFailed(f"the address contains no code: {_COPY}")
        return code


def parameters(redirect: str) -> Mapping[str, str]:
    """The query of an address, or of what a person copied of it."""
    redirect = redirect.strip()[:_LONGEST_REDIRECT]
    query = redirect.partition("?")[2].partition("#")[0] if "?" in redirect else redirect
    try:
        found = parse_qs(query, keep_blank_values=True, max_num_fields=50)
    except ValueError:
        return {}
    # A parameter given twice could mean either.
    return {name: values[0] for name, values in found.items() if len(values) == 1}
