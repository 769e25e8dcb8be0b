"""The door of `/mcp`: who is let in, and what everybody else is told, as the protocol says it (RFC 6750, RFC 9728).

Called by the gate over HTTP before a body is read. Knows headers and credentials, no messages. Never repeats a
credential.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from mcp_optimizer.access.callers.rejections import CannotVerify, Rejected, ScopesMissing
from mcp_optimizer.access.callers.verification import Credentials
from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.principal import ANYONE, Principal

METADATA_PATH = "/.well-known/oauth-protected-resource"
MCP_PATH = "/mcp"

_LONGEST = 16_384
"""Characters of a credential."""

_RETRY_AFTER = 2
_AUTHORIZATION, _API_KEY = b"authorization", b"x-api-key"
_NO_CREDENTIAL = (
    "A key or token is needed: send 'Authorization: Bearer ...'. `mcp-optimizer key create --name NAME` makes a key."
)

NeededScopes = Callable[[Caller, Any], Sequence[str]]
"""The scopes that a caller's message needs."""


class Denied(Exception):
    """Somebody is not let in."""

    def __init__(self, status: int, error: str, description: str, challenge: str = "") -> None:
        super().__init__(description)
        self.status = status
        self.error = error
        """A word of RFC 6750, or one like it."""
        self.description = description
        self.challenge = challenge
        """The WWW-Authenticate header."""

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
    """Lets callers in. With `is_open`, also those without any credential, as ANYONE."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        is_open: bool,
        public_url: str = "",
        needed_scopes: NeededScopes | None = None,
        denied: Callable[[int, str], None] | None = None,
    ) -> None:
        """`public_url`: the address of the gateway, if not the one in the request. `needed_scopes`: asked about each
        message of a caller with a token. `denied`: told of everybody who was not let in.
        """
        self._credentials = credentials
        self._is_open = is_open
        self._public_url = public_url
        self._needed_scopes = needed_scopes
        self._denied = denied

    @property
    def has_issuers(self) -> bool:
        return bool(self._credentials.issuers)

    def resource(self, scheme: str, host: str, port: int | None) -> str:
        """The address of `/mcp` that tokens are for.

        `host` is the admitted Host header; its port is the client's own word, so `port`, the one we listen on, counts:
        a token for another server of this machine must not open this one.
        """
        if self._public_url:
            return f"{self._public_url}{MCP_PATH}"
        name = host[: host.rindex("]") + 1] if host.startswith("[") and "]" in host else host.partition(":")[0]
        usual = 443 if scheme == "https" else 80
        return f"{scheme}://{name.lower()}{'' if port in (None, usual) else f':{port}'}{MCP_PATH}"

    def asks_nothing_of(self, fields: Mapping[bytes, bytes]) -> bool:
        """Whether whoever sent these header fields is ANYONE, without a further look."""
        return self._is_open and _AUTHORIZATION not in fields and _API_KEY not in fields

    async def admit(self, headers: Iterable[tuple[bytes, bytes]], resource: str, address: str = "") -> Principal:
        """Who sent a request with these headers, from this address if it is known; raises Denied."""
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
        """Raises Denied if the caller's token lacks a scope that its message needs."""
        principal = caller.principal
        if self._needed_scopes is None or principal.scopes is None:
            return
        needed = self._needed_scopes(caller, message)
        if not principal.scopes.issuperset(needed):
            raise self._step_up(sorted(principal.scopes.union(needed)), resource)

    def note(self, denied: Denied) -> None:
        """Somebody was not let in."""
        if self._denied is not None:
            self._denied(denied.status, denied.error or "no credential")

    def metadata(self, resource: str) -> dict[str, Any]:
        """RFC 9728: what a client needs to know to get a token."""
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
        return await self._credentials.of_bearer(text, resource, address)

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
        # Nothing here should have a quote in it, and nothing that has may end another value.
        quoted = {name: value.replace('"', "'") for name, value in said.items() if value}
        return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in quoted.items())
