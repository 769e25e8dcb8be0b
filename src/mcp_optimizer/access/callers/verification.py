"""Verifies credentials: API keys, and tokens of the issuers in the settings. Called by `door` and the dashboard."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from mcp_optimizer.access.callers.keys import PREFIX, KnownKeys, Rejected
from mcp_optimizer.domain.caller import Principal, Risk
from mcp_optimizer.domain.credentials import TokenIssuer

if TYPE_CHECKING:
    # Not at run time: it is loaded only where people sign in at an issuer.
    from mcp_optimizer.access.callers.company_sign_in import CompanySignIns

_NO_KEYS = "Keys are not used here, because nothing is stored."
_MOST_REMEMBERED = 1_000
"""Callers whose groups are remembered, to show them."""
_UNKNOWN_ISSUER = "The token is of an issuer that is not accepted here."


class TokenVerifier(Protocol):
    """Verifies the tokens of one issuer; raises Rejected, ScopesMissing or CannotVerify. `address`: the client's."""

    async def principal(self, token: str, resource: str, address: str = "", /) -> Principal: ...
    async def close(self) -> None: ...


class Credentials:
    """The API keys and token issuers that a gateway accepts."""

    def __init__(
        self,
        keys: KnownKeys | None,
        issuers: Sequence[TokenIssuer] = (),
        verifiers: Mapping[str, TokenVerifier] | None = None,
        close_web: Callable[[], Awaitable[None]] | None = None,
        sign_ins: CompanySignIns | None = None,
    ) -> None:
        """`verifiers`: by issuer address. `close_web`: called last by `close`. `sign_ins`: where people sign in to the
        dashboard with an issuer.
        """
        self.issuers = tuple(issuers)
        self.sign_ins = sign_ins
        self._keys = keys
        self._verifiers = dict(verifiers or {})
        self._close_web = close_web
        self._groups: OrderedDict[str, frozenset[str]] = OrderedDict()
        asked = [one.issuer for one in issuers if one.introspection_url]
        self._of_opaque = asked[0] if len(asked) == 1 else None

    def keys_changed(self, names: Sequence[str]) -> None:
        """A key was made or revoked."""
        if self._keys is not None:
            self._keys.changed(names)

    @property
    def scopes(self) -> tuple[str, ...]:
        """Every scope that the settings use."""
        return tuple(dict.fromkeys(scope for issuer in self.issuers for scope in issuer.scopes))

    @property
    def first_scopes(self) -> tuple[str, ...]:
        """The scopes that a new token should have: those for every call, and those for tools that only read."""
        least = (scope for one in self.issuers for scope in (*one.required_scopes, *one.risk_scopes.get(Risk.READ, ())))
        return tuple(dict.fromkeys(least))

    async def of_key(self, text: str) -> Principal:
        """The key's holder; raises Rejected or CannotVerify."""
        if self._keys is None:
            raise Rejected(_NO_KEYS)
        return await self._keys.principal(text)

    @property
    def takes_keys(self) -> bool:
        return self._keys is not None

    async def holder(self, key_id: str) -> Principal:
        """The holder of a key that was verified before, if it still lives; raises Rejected or CannotVerify."""
        if self._keys is None:
            raise Rejected(_NO_KEYS)
        return await self._keys.holder(key_id)

    def person(self, text: str) -> Principal:
        """Who signed in at an issuer before, if the settings still permit it; raises Rejected."""
        if self.sign_ins is None:
            raise Rejected("People sign in here only with a key.")
        principal = self.sign_ins.person(text)
        self._note_groups(principal)
        return principal

    async def of_bearer(self, text: str, resource: str, address: str = "") -> Principal:
        """The holder of a key or token; raises Rejected, ScopesMissing or CannotVerify. `address`: the client's."""
        if text.startswith(PREFIX):
            # Even if it is not valid: a key must never be sent to a token issuer.
            return await self.of_key(text)
        if not self._verifiers:
            raise Rejected("The key is unknown, expired or revoked.")
        from mcp_optimizer.access.callers.signed_tokens import unverified_issuer

        issuer = unverified_issuer(text) or self._of_opaque
        verifier = self._verifiers.get(issuer) if issuer is not None else None
        if verifier is None:
            raise Rejected(_UNKNOWN_ISSUER)
        principal = await verifier.principal(text, resource, address)
        self._note_groups(principal)
        return principal

    def groups_of(self, name: str) -> frozenset[str]:
        """The groups that the latest token of a caller named, as far as this gateway has seen it lately."""
        return self._groups.get(name, frozenset())

    def _note_groups(self, principal: Principal) -> None:
        self._groups.pop(principal.name, None)
        if principal.groups:
            self._groups[principal.name] = principal.groups
            if len(self._groups) > _MOST_REMEMBERED:
                self._groups.popitem(last=False)

    def scopes_for(self, principal: Principal, risk: Risk) -> tuple[str, ...]:
        """The scopes that this caller needs for a tool of this risk class; none if it has no token."""
        if principal.scopes is None:
            return ()
        label = principal.name.partition(":")[0]
        return next((one.risk_scopes.get(risk, ()) for one in self.issuers if one.name == label), ())

    async def close(self) -> None:
        for verifier in self._verifiers.values():
            await verifier.close()
        if self.sign_ins is not None:
            await self.sign_ins.close()
        if self._keys is not None:
            await self._keys.close()
        if self._close_web is not None:
            await self._close_web()
