"""Authenticates requests to `/mcp`, and builds the responses for rejected ones (RFC 6750, RFC 9728).

Called by the HTTP gate before a body is read. Knows headers and credentials, not messages. Never repeats a credential.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from mcp_optimizer.access.callers.keys import CannotVerify, Rejected, ScopesMissing
from mcp_optimizer.access.callers.verification import Credentials
from mcp_optimizer.domain.caller import ANYONE, Caller, Principal

METADATA_PATH = "/.well-known/oauth-protected-resource"
MCP_PATH = "/mcp"

_LONGEST = 16_384
"""Maximum characters of a credential."""

_RETRY_AFTER = 2
_AUTHORIZATION, _API_KEY = b"authorization", b"x-api-key"
_NO_CREDENTIAL = (
    "A key or token is needed: send 'Authorization: Bearer ...'. `mcp-optimizer key create --name NAME` makes a key."
)

NeededScopes = Callable[[Caller, Any], Sequence[str]]
"""Returns the scopes that a caller's message needs."""


class Denied(Exception):
    """A request is rejected; carries its HTTP response."""

    def __init__(self, status: int, error: str, description: str, challenge: str = "") -> None:
        super().__init__(description)
        self.status = status
        self.error = error
        """An error code of RFC 6750, or one in its style."""
        self.description = description
        self.challenge = challenge
        """The value of the WWW-Authenticate header."""

    @property
    def body(self) -> dict[str, str]:
        return {"error": self.error or "unauthorized", "error_description": self.description}

    @property
    def headers(self) -> dict[str, str]:
        headers = {"Cache-Control": "no-store"}
        if self.challenge:
            headers["WWW-Authenticate"] = self.challenge
        if self.status == 503:
            headers["Retry-After"] = str(_RETRY_AFTER)
        return headers


class Door:
    """Admits callers. With `is_open`, admits callers without a credential as ANYONE."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        is_open: bool,
        public_url: str = "",
        needed_scopes: NeededScopes | None = None,
        denied: Callable[[int, str], None] | None = None,
        verified: Callable[[Principal, str], None] | None = None,
    ) -> None:
        """`public_url`: the gateway's address, if it differs from the one in the request. `needed_scopes`: called for
        each message of a caller with a token. `denied`: called for each rejected request. `verified`: called with each
        token of an issuer that was found to be valid.
        """
        self._credentials = credentials
        self._is_open = is_open
        self._public_url = public_url
        self._needed_scopes = needed_scopes
        self._denied = denied
        self._token_verified = verified

    @property
    def has_issuers(self) -> bool:
        return bool(self._credentials.issuers)

    def resource(self, scheme: str, host: str, port: int | None) -> str:
        """The address of `/mcp` that tokens must be issued for.

        `host` is the admitted Host header. The client chooses the port in it, so `port`, the one we listen on, counts:
        a token for another server on this machine must not be valid here.
        """
        if self._public_url:
            return f"{self._public_url}{MCP_PATH}"
        name = host[: host.rindex("]") + 1] if host.startswith("[") and "]" in host else host.partition(":")[0]
        usual = 443 if scheme == "https" else 80
        return f"{scheme}://{name.lower()}{'' if port in (None, usual) else f':{port}'}{MCP_PATH}"

    def asks_nothing_of(self, fields: Mapping[bytes, bytes]) -> bool:
        """Whether the sender of these header fields is admitted as ANYONE, without calling `admit`."""
        return self._is_open and _AUTHORIZATION not in fields and _API_KEY not in fields

    async def admit(self, headers: Iterable[tuple[bytes, bytes]], resource: str, address: str = "") -> Principal:
        """The sender of a request with these headers, from this address if known; raises Denied."""
        given = [(name, value) for name, value in headers if name in (_AUTHORIZATION, _API_KEY)]
        if not given and self._is_open:
            return ANYONE
        if not given:
            raise Denied(401, "", _NO_CREDENTIAL, self._challenge(resource))
        if len(given) > 1:
            raise Denied(400, "invalid_request", "Send one credential, in one header.")
        name, value = given[0]
        try:
            return await self._verified(name, value, resource, address)
        except Rejected as rejected:
            told = str(rejected)
            raise Denied(401, "invalid_token", told, self._challenge(resource, "invalid_token", told)) from None
        except ScopesMissing as missing:
            raise self._step_up(missing.scopes, resource) from None
        except CannotVerify as cannot:
            raise Denied(503, "temporarily_unavailable", str(cannot)) from None

    def check_scopes(self, caller: Caller, message: object, resource: str) -> None:
        """Raise Denied if the caller's token lacks a scope that the message needs."""
        principal = caller.principal
        if self._needed_scopes is None or principal.scopes is None:
            return
        needed = self._needed_scopes(caller, message)
        if not principal.scopes.issuperset(needed):
            raise self._step_up(sorted(principal.scopes.union(needed)), resource)

    def note(self, denied: Denied) -> None:
        """Report a rejected request."""
        if self._denied is not None:
            self._denied(denied.status, denied.error or "no credential")

    def metadata(self, resource: str) -> dict[str, Any]:
        """The metadata that a client needs to get a token (RFC 9728)."""
        scopes = self._credentials.scopes
        return {
            "resource": resource,
            "authorization_servers": [issuer.issuer for issuer in self._credentials.issuers],
            **({"scopes_supported": list(scopes)} if scopes else {}),
            "bearer_methods_supported": ["header"],
            "resource_name": "mcp-optimizer",
        }

    async def _verified(self, name: bytes, value: bytes, resource: str, address: str) -> Principal:
        text = value.decode("latin-1")
        if name == _AUTHORIZATION:
            scheme, _, text = text.partition(" ")
            text = text.strip()
            if scheme.lower() != "bearer":
                raise Rejected("Only 'Authorization: Bearer ...' is understood.")
        if not text or len(text) > _LONGEST or not text.isascii() or not text.isprintable() or " " in text:
            raise Rejected("The credential cannot be read.")
        if name == _API_KEY:
            return await self._credentials.of_key(text)
        principal = await self._credentials.of_bearer(text, resource, address)
        if self._token_verified is not None and principal.claims:
            self._token_verified(principal, text)
        return principal

    def _step_up(self, scopes: Sequence[str], resource: str) -> Denied:
        told = "The token lacks scopes that this needs."
        challenge = self._challenge(resource, "insufficient_scope", told, scopes)
        return Denied(403, "insufficient_scope", told, challenge)

    def _challenge(
        self, resource: str, error: str = "", description: str = "", scopes: Sequence[str] | None = None
    ) -> str:
        said = {"error": error, "error_description": description if error else ""}
        if self.has_issuers:
            place = f"{resource.removesuffix(MCP_PATH)}{METADATA_PATH}{MCP_PATH}"
            wanted = self._credentials.first_scopes if scopes is None else scopes
            said |= {"scope": " ".join(wanted), "resource_metadata": place}
        else:
            said = {"realm": "mcp-optimizer", **said}
        # These values should contain no quotes; one that does must not end its value early.
        quoted = {name: value.replace('"', "'") for name, value in said.items() if value}
        return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in quoted.items())
