"""Identifies the sender of a request to the dashboard: by a key or token in a header, by a sign-in, or as anyone if it
is open.

Called by `guard` for every request. Knows no pages. An address or a user of this machine proves nothing: a server that
makes a model call a local address has the same address and user. A sign-in is valid as long as its key, which is looked
up each time; the credentials check for changes at least every two seconds. A token was chosen by a person and may be
guessed, so an address must wait a minute after ten wrong guesses; keys, tickets and sign-ins are random.
"""

from __future__ import annotations

import hmac
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from starlette.requests import Request

from mcp_optimizer.access.callers.door import Denied, Door
from mcp_optimizer.access.callers.keys import PREFIX, CannotVerify, Rejected, id_of
from mcp_optimizer.access.callers.verification import Credentials
from mcp_optimizer.dashboard.sign_ins import LASTS, SignInHost, SignIns, is_shared, port_of
from mcp_optimizer.dashboard.visitor import Visitor
from mcp_optimizer.domain.addresses import is_loopback
from mcp_optimizer.domain.caller import ANYONE, LOCAL_PRINCIPAL, Principal, Role
from mcp_optimizer.domain.credentials import SignInKind
from mcp_optimizer.errors import CatalogError, ConfigurationError

if TYPE_CHECKING:
    # Not at run time: it is loaded only where people sign in at an issuer.
    from mcp_optimizer.access.callers.company_sign_in import Person

_MOST_GUESSES = 10
_GUESS_WINDOW = 60.0
_MOST_ADDRESSES = 1_000


class WrongGuesses:
    """The recent wrong guesses of each address; the oldest addresses make room for new ones."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._of: OrderedDict[str, deque[float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._of)

    def note(self, address: str) -> None:
        """Records one more wrong guess."""
        self._of.setdefault(address, deque(maxlen=_MOST_GUESSES)).append(self._clock())
        self._of.move_to_end(address)
        while len(self._of) > _MOST_ADDRESSES:
            self._of.popitem(last=False)

    def are_too_many(self, address: str) -> bool:
        """Whether the address must wait before another guess."""
        found = self._of.get(address)
        return found is not None and len(found) == _MOST_GUESSES and found[0] > self._clock() - _GUESS_WINDOW


TOKEN_HOLDER = Principal("dashboard", "dashboard", role=Role.MANAGE)
"""The holder of the dashboard's token. Names from keys and issuers contain a colon, so none of them equals this one."""

_NAME = "mcp-optimizer"
_BEARER = b"bearer "
_UNREADABLE = "The key or token is unknown, expired or revoked."
_LAPSED = "Your sign-in is no longer valid: {} Sign in again."
_ENDED = "Your key was revoked or has expired. Sign in with another one."
_USED = "This link was used before, or is too old. Run `mcp-optimizer dashboard` again."
_USED_ANSWER = "This answer was used before. Sign in again."
_LOCKED = "Too many wrong tokens came from this address. Wait a minute; `mcp-optimizer dashboard` still opens the page."


ENTRANCE = "/enter"
"""The address at which a browser presents its ticket."""

_Made = Callable[[], Awaitable[str]]


@dataclass(frozen=True)
class SignedIn:
    """A successful sign-in: the secret that the browser keeps, or the address where it gets one."""

    kept: str = ""
    leads_to: str = ""


class NotAdmitted(Exception):
    """The request is not admitted."""

    def __init__(self, status: int, told: str = "", *, is_wrong: bool = False) -> None:
        super().__init__(told)
        self.status = status
        self.told = told
        self.is_wrong = is_wrong
        """Whether the request had a credential, but an invalid one."""


@dataclass(frozen=True)
class Entrance:
    """Who may enter, according to the settings."""

    is_open: bool
    """Visitors without a key may see a part of the dashboard."""
    token: str = ""
    public_url: str = ""
    own_host: SignInHost | None = None
    """The host name for sign-ins, if the gateway is on loopback."""
    has_own_page: Callable[[], bool] = bool
    """Whether every caller has a page, to log in to servers as itself."""


class Reception:
    """Admits people and programs."""

    def __init__(
        self, entrance: Entrance, credentials: Credentials, sign_ins: SignIns, guesses: WrongGuesses | None = None
    ) -> None:
        self._entrance = entrance
        self._credentials = credentials
        self._door = Door(credentials, is_open=False, public_url=entrance.public_url)
        self._sign_ins = sign_ins
        self._guesses = guesses or WrongGuesses()

    @property
    def takes_a_key(self) -> bool:
        """Whether a sign-in form could accept anything."""
        return bool(self._entrance.token) or self._credentials.takes_keys

    @property
    def companies(self) -> Mapping[str, str]:
        """What people call the issuers at which they can sign in, by name."""
        return self._credentials.sign_ins.titles if self._credentials.sign_ins is not None else {}

    @property
    def public_url(self) -> str:
        """The address at which browsers reach the gateway; empty if it is not configured."""
        return self._entrance.public_url

    @property
    def has_own_page(self) -> bool:
        """Whether a caller without a role may sign in, to its own page."""
        return self._entrance.has_own_page()

    async def visitor(self, request: Request) -> Visitor:
        """The sender of a request; raises NotAdmitted."""
        given = [(name, value) for name, value in request.scope["headers"] if _is_credential(name, value)]
        if given:
            return Visitor(await self._bearer(request, given))
        try:
            return Visitor(await self._signed_in(request), is_signed_in=True)
        except NotAdmitted as refused:
            # If a sign-in cannot be checked now, the visitor gets an error instead of becoming anonymous.
            if not self._entrance.is_open or refused.status == 503:
                raise
            return Visitor(ANYONE, is_anybody=True)

    async def enter(self, ticket: str) -> str:
        """Exchanges a ticket for the secret that the browser keeps; raises NotAdmitted."""
        with _without_database():
            if (kept := await self._sign_ins.enter(ticket, self._entrance.token)) is not None:
                return kept
        raise NotAdmitted(401, _USED, is_wrong=True)

    async def sign_in(self, request: Request, text: str) -> SignedIn:
        """Signs in with a key or the dashboard's token; raises NotAdmitted."""
        if self._is_token(request, text.encode("utf-8", "surrogatepass")):
            token, ins = self._entrance.token, self._sign_ins
            return await self._kept(request, partial(ins.with_token, token), partial(ins.ticket_with_token, token))
        text = text.strip()
        if not text.startswith(PREFIX):
            raise self._wrong(request, NotAdmitted(401, _UNREADABLE, is_wrong=True))
        try:
            principal = await self._credentials.of_key(text)
        except Rejected as rejected:
            raise NotAdmitted(401, str(rejected), is_wrong=True) from None
        except CannotVerify as cannot:
            raise NotAdmitted(503, str(cannot)) from None
        if not principal.role.covers(Role.SEE) and not self.has_own_page:
            raise NotAdmitted(403, no_role(principal, Role.SEE))
        key, ins = id_of(text) or "", self._sign_ins
        return await self._kept(request, partial(ins.with_key, key), partial(ins.ticket_with_key, key))

    async def sign_in_person(self, person: Person) -> str:
        """Signs in a person whom an issuer names; returns the secret that the browser keeps, or raises NotAdmitted."""
        with _without_database():
            if not await self._sign_ins.use_once(person.answer, LASTS):
                raise NotAdmitted(401, _USED_ANSWER)
            if not person.principal.role.covers(Role.SEE) and not self.has_own_page:
                raise NotAdmitted(403, _no_rights(person.principal))
            return await self._sign_ins.with_person(person.text, person.lasts)

    async def sign_out(self, request: Request) -> None:
        """Ends the sign-in of this browser."""
        with _without_database():
            await self._sign_ins.end(request.cookies.get(self.cookie(request), ""))

    def is_secure(self, request: Request) -> bool:
        """Whether the browser uses TLS, which a proxy may terminate."""
        return _scheme(request) == "https" or self._entrance.public_url.startswith("https://")

    def cookie(self, request: Request) -> str:
        """The name of the cookie. With TLS, one that pages of a neighbouring host cannot set."""
        return f"__Host-{_NAME}" if self.is_secure(request) else _NAME

    def is_elsewhere(self, request: Request) -> bool:
        """Whether browsers keep their sign-in under another host name than that of this request."""
        return self._entrance.own_host is not None and is_shared(request)

    def is_at_own_name(self, request: Request) -> bool:
        """Whether a request was sent to the host name reserved for sign-ins."""
        return self._entrance.own_host is not None and self._entrance.own_host.is_named(request)

    async def admits_name(self, request: Request) -> bool:
        """The same for a request whose Host was not checked yet."""
        return self._entrance.own_host is not None and await self._entrance.own_host.admits(request)

    async def _kept(self, request: Request, kept: _Made, ticket: _Made) -> SignedIn:
        own = self._entrance.own_host
        with _without_database():
            if own is None or not is_shared(request):
                return SignedIn(kept=await kept())
            return SignedIn(leads_to=f"{await own.origin(port_of(request))}{ENTRANCE}?ticket={await ticket()}")

    async def _bearer(self, request: Request, given: list[tuple[bytes, bytes]]) -> Principal:
        # Header bytes are read as Latin-1 elsewhere; the token is compared with the bytes that were sent.
        texts = [value[len(_BEARER) :].strip() for name, value in given if name == b"authorization"]
        if any(self._is_token(request, text) for text in texts):
            return TOKEN_HOLDER
        _, port = request.scope.get("server") or ("", None)
        resource = self._door.resource(_scheme(request), request.headers.get("host", ""), port)
        try:
            return await self._door.admit(given, resource, _address(request))
        except Denied as denied:
            is_wrong = denied.status in (400, 401)
            refused = NotAdmitted(denied.status, denied.description, is_wrong=is_wrong)
            may_be_guess = is_wrong and any(not text.startswith(PREFIX.encode()) for text in texts)
            raise (self._wrong(request, refused) if may_be_guess else refused) from None

    async def _signed_in(self, request: Request) -> Principal:
        kept = request.cookies.get(self.cookie(request), "")
        with _without_database():
            found = await self._sign_ins.find(kept, self._entrance.token) if kept else None
        if found is None:
            raise NotAdmitted(401)
        if found.kind is SignInKind.PERSON:
            try:
                return self._credentials.person(found.bound_to)
            except Rejected as rejected:
                await self.sign_out(request)
                raise NotAdmitted(401, _LAPSED.format(rejected)) from None
        if found.kind is not SignInKind.KEY:
            return LOCAL_PRINCIPAL if found.kind is SignInKind.OWNER else TOKEN_HOLDER
        try:
            return await self._credentials.holder(found.bound_to)
        except Rejected:
            await self.sign_out(request)
            raise NotAdmitted(401, _ENDED) from None
        except CannotVerify as cannot:
            raise NotAdmitted(503, str(cannot)) from None

    def _is_token(self, request: Request, given: bytes) -> bool:
        """Whether a text is the dashboard's token; never after too many wrong guesses."""
        token = self._entrance.token.encode()
        if not token or self._guesses.are_too_many(_peer(request)):
            return False
        return hmac.compare_digest(given, token)

    def _wrong(self, request: Request, refused: NotAdmitted) -> NotAdmitted:
        """The answer to a text that is neither a key nor the token."""
        if not self._entrance.token:
            return refused
        if self._guesses.are_too_many(_peer(request)):
            return NotAdmitted(429, _LOCKED)
        self._guesses.note(_peer(request))
        return refused


def _no_rights(principal: Principal) -> str:
    return (
        f"You are {principal.name}, and have no rights on this dashboard. Ask the people who run this gateway for the "
        "role see or manage, which your company's provider names."
    )


def no_role(principal: Principal, needed: Role) -> str:
    """Why the role of a known principal is not sufficient, and what would help."""
    if principal.scopes is not None:
        return (
            f"This needs the role {needed}, and {principal.name} has the role {principal.role}: its provider says so "
            "with the claim that the settings name as role_claim."
        )
    return (
        f"This needs a key with the role {needed}, and {principal.name} has the role {principal.role}. "
        f"`mcp-optimizer key create --name NAME --role {needed}` makes one."
    )


@contextmanager
def _without_database() -> Iterator[None]:
    """Reports a failing database, which stores the sign-ins."""
    try:
        yield
    except CatalogError as error:
        raise NotAdmitted(503, f"Sign-ins cannot be checked now: {error}.") from None
    except ConfigurationError as error:
        raise NotAdmitted(503, str(error)) from None


def _address(request: Request) -> str:
    return request.client.host if request.client is not None else ""


def _peer(request: Request) -> str:
    """The address to which guesses are counted; all of loopback counts as one."""
    address = _address(request)
    return "loopback" if is_loopback(address) else address


def _scheme(request: Request) -> str:
    # Not from the URL, which cannot be read if the Host header is malformed.
    scheme: str = request.scope.get("scheme", "http")
    return scheme


def _is_credential(name: bytes, value: bytes) -> bool:
    """Whether a header is a credential for us. Other Authorization schemes are for a proxy in front of the gateway."""
    return name == b"x-api-key" or (name == b"authorization" and value[: len(_BEARER)].lower() == _BEARER)
