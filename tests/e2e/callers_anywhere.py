"""Two callers at three gateways behind HAProxy: their clients of both eras use every method while gateways die.

Each caller acts at one server as itself, with a login of its own or with what its token is exchanged for. `mixed_up`
says what reached a client and was another caller's. For tests, and for the long run.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import re
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import httpx2

from mcp_optimizer.domain.caller import Risk
from tests.cluster import Cluster, Gateway
from tests.e2e.made_keys import made_key
from tests.e2e.raw_clients import LEGACY, MODERN, PATIENCE, HttpClient, answer_of, message
from tests.servers.authorization_grants import EXCHANGE
from tests.servers.login_world import LoginWorld
from tests.waiting import until

CALLERS = ("ada", "bob")
OPTIONS = ("--cache-seconds", "600", "--max-tokens", "300", "--preview-tokens", "200", "--log-level", "debug")
NOTES = ("note://mine", *(f"note://{who}-secret" for who in CALLERS))
"""What every client subscribes to. A server tells each caller's sessions of the first, and of the one with its name."""
_NEW = 6.0
"""Seconds in which a gateway does not replace a token again: if a new one is refused, so would be the next."""
_FORM = {"Sec-Fetch-Site": "same-origin"}
_CUT = "mcp-optimizer/result"


def secret_key() -> dict[str, str]:
    """Gateways on several machines get the key of the database's secrets in the environment."""
    return {"MCP_OPTIMIZER_SECRET_KEY": base64.b64encode(secrets.token_bytes(32)).decode()}


class Identity(Protocol):
    """How the callers come to act as themselves."""

    world: LoginWorld

    def entry(self) -> dict[str, Any]:
        """The `auth` of the server's entry."""

    def settings(self) -> str: ...
    async def prepare(self, database: str) -> None:
        """Before the gateways start."""

    def bearer(self, who: str) -> str: ...
    async def begin(self, who: str, cluster: Cluster) -> None:
        """What a person does before the first call, and when the login was lost."""

    def renewals(self) -> int:
        """How many tokens the authorization server has given in place of others."""


class OwnLogins:
    """Callers with keys, who log in on the page `/mine`, each of whose requests may reach another gateway."""

    def __init__(self, world: LoginWorld) -> None:
        self.world = world
        self._keys: dict[str, str] = {}

    def entry(self) -> dict[str, Any]:
        return {"type": "oauth", "principal": "caller"}

    def settings(self) -> str:
        return ""

    async def prepare(self, database: str) -> None:
        before = os.environ.get("MCP_OPTIMIZER_DATABASE")
        os.environ["MCP_OPTIMIZER_DATABASE"] = database
        try:
            self._keys = {who: await made_key(who, Risk.DESTRUCTIVE) for who in CALLERS}
        finally:
            if before is None:
                del os.environ["MCP_OPTIMIZER_DATABASE"]
            else:
                os.environ["MCP_OPTIMIZER_DATABASE"] = before

    def bearer(self, who: str) -> str:
        return self._keys[who]

    async def begin(self, who: str, cluster: Cluster) -> None:
        await asyncio.to_thread(self.world.control, user=who)
        headers = {"Authorization": f"Bearer {self.bearer(who)}", **_FORM}
        origin = cluster.address.removesuffix("/mcp")
        async with httpx2.AsyncClient(base_url=origin, headers=headers, trust_env=False, timeout=PATIENCE) as browser:
            page = await browser.post("/mine/desk")
            assert page.status_code == 200, page.text
            [address] = re.findall(r'href="(http://localhost:\d+/authorize[^"]*)"', page.text)
            redirect = await asyncio.to_thread(self.world.browser, address.replace("&amp;", "&"))
            done = await browser.get(redirect)
            assert "You are logged in to desk" in done.text, done.text

    def renewals(self) -> int:
        return self.world.counts()["refreshes"]


class Exchanged:
    """Callers with tokens of their company, which are exchanged."""

    def __init__(self, world: LoginWorld) -> None:
        self.world = world
        self._tokens: dict[str, str] = {}

    def entry(self) -> dict[str, Any]:
        client = self.world.add_client(grant_types=[EXCHANGE])
        given = {name: client[name] for name in ("client_id", "client_secret")}
        return {"principal": "caller", "exchange": {"issuer": self.world.issuer, **given}}

    def settings(self) -> str:
        return f'[[token_issuers]]\nname = "corp"\nissuer = "{self.world.issuer}"\naudience = "the gateway"\n'

    async def prepare(self, database: str) -> None:
        ends = int(time.time()) + 86_400
        for who in CALLERS:
            self._tokens[who] = self.world.sign(aud="the gateway", sub=who, jti=secrets.token_hex(8), exp=ends)

    def bearer(self, who: str) -> str:
        return self._tokens[who]

    async def begin(self, who: str, cluster: Cluster) -> None:
        """Nothing: a request with the token is enough."""

    def renewals(self) -> int:
        return self.world.counts()["exchanges"]


async def configured(identity: Identity, folder: Path, database: str) -> tuple[Path, Path]:
    """The server file and the settings of the gateways."""
    await identity.prepare(database)
    config, settings = folder / "mcp.json", folder / "settings.toml"
    entry = {"type": "http", "url": identity.world.server_url, "auth": identity.entry()}
    config.write_text(json.dumps({"mcpServers": {"desk": entry}}))
    settings.write_text(f'require_auth = true\ntrust_remote = "off"\n{identity.settings()}')
    return config, settings


@dataclass(frozen=True)
class Sent:
    """A request, and what its client itself said in it."""

    method: str
    params: dict[str, Any]
    said: str = ""

    @classmethod
    def tool(cls, name: str, arguments: dict[str, Any], said: str = "") -> Sent:
        return cls("tools/call", {"name": name, "arguments": arguments}, said)

    @classmethod
    def call(cls, tool: str, said: str = "") -> Sent:
        return cls.tool("call_tool", {"tool_name": tool, "parameters": {}}, said)


def requests(who: str, other: str) -> Sequence[Sent]:
    """Every method that shows something of a server; of the other caller's, too, as far as it can be named."""
    prompt = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "word", "value": "w"}}
    return (
        Sent.tool("find_tool", {"tool_description": "read the diary"}),
        Sent.tool("find_tool", {"tool_description": "write a page into a book"}),
        Sent("tools/list", {}),
        *map(Sent.call, ("whoami", "whoami", "write_page", "touch_note", "all_pages", f"{who}_diary")),
        Sent.call(f"{other}_diary", f"{other}_diary"),
        Sent("prompts/list", {}),
        Sent("prompts/get", {"name": "greet"}),
        Sent("resources/list", {}),
        Sent("resources/templates/list", {}),
        Sent("resources/read", {"uri": NOTES[0]}),
        Sent("resources/read", {"uri": f"note://{other}-secret"}, f"note://{other}-secret"),
        Sent("completion/complete", prompt),
    )


@dataclass
class Seat:
    """A client of one caller, and what has reached it."""

    who: str
    era: str
    client: HttpClient
    answered: int = 0
    latest: deque[str] = field(default_factory=lambda: deque(maxlen=3))
    updates: int = 0
    """Changes of resources that its streams have told of."""
    mixed_up: list[str] = field(default_factory=list)
    """What of the other caller has reached this one."""
    is_logged_out: bool = False
    """Whether it was told that its caller's login has ended."""
    lost: int = 0
    """Requests that a gateway had when it was killed."""
    kept: str = ""
    """The latest of its results that was cut."""
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def other(self) -> str:
        return next(one for one in CALLERS if one != self.who)

    async def ask(self, sent: Sent) -> str:
        """What came back, without what the client said itself; empty if nothing did, because a gateway was killed."""
        body = message(sent.method, sent.params, next(self.numbers), self.era)
        try:
            response = await self.client.post(body)
            if response.status_code in (502, 503, 504):
                self.lost += 1
                return ""
            answer = answer_of(response)
        except (httpx2.HTTPError, ValueError, IndexError):
            self.lost += 1
            return ""
        about = answer.get("result", {}).get("_meta", {}).get(_CUT, {})
        self.kept = about.get("resultId", self.kept)
        text = json.dumps(answer)
        self._look_at(text := text.replace(sent.said, "") if sent.said else text)
        self.answered += 1
        self.latest.append(text)
        return text

    def _look_at(self, text: str) -> None:
        if f"{self.other}-secret" in text or f"{self.other}_diary" in text:
            self.mixed_up.append(text[:300])
        self.is_logged_out |= "(invalid_grant)" in text

    async def everything(self, others: Seat) -> bool:
        """One round of all requests; whether each that should was answered as this caller."""
        answers = [(sent, await self.ask(sent)) for sent in requests(self.who, self.other)]
        for result in (self.kept, others.kept):
            if result:
                await self.ask(Sent.tool("read_result", {"result_id": result, "search": "page 150"}))
        own = f"{self.who}-secret"
        calls = [text for sent, text in answers if sent.params.get("name") == "call_tool" and not sent.said]
        lists = [text for sent, text in answers if sent.method in ("prompts/list", "resources/list", "prompts/get")]
        return all(own in text for text in (*calls, *lists))

    async def listen(self) -> None:
        """Open its stream, and open it again whenever its gateway dies; never returns."""
        while True:
            with contextlib.suppress(httpx2.HTTPError):
                async with self._stream() as response:
                    async for line in response.aiter_lines():
                        if '"method"' in line and "acknowledged" not in line:
                            self._look_at(line)
                            self.updates += "resources/updated" in line
            await _pause(time.monotonic() + 0.05)

    def _stream(self) -> contextlib.AbstractAsyncContextManager[httpx2.Response]:
        client = self.client
        if self.era == LEGACY:
            return client.http.stream("GET", client.address, headers=client.headers)
        wanted = {"resourceSubscriptions": NOTES, "toolsListChanged": True, "resourcesListChanged": True}
        body = message("subscriptions/listen", {"notifications": wanted}, next(self.numbers), MODERN)
        headers = {**client.headers, "Mcp-Method": "subscriptions/listen"}
        return client.http.stream("POST", client.address, json=body, headers=headers)


class Office:
    """The clients of both callers, in both eras, at the cluster."""

    def __init__(self, cluster: Cluster, identity: Identity, seats: Sequence[Seat]) -> None:
        self.cluster, self.identity, self.seats = cluster, identity, seats
        self.lost_logins = 0
        self.renewed: list[int] = []
        """How many tokens were renewed when all had ended at once."""
        self._new_until = 0.0

    def colleague(self, seat: Seat) -> Seat:
        return next(one for one in self.seats if one.who == seat.other and one.era == seat.era)

    async def all_served(self) -> None:
        """Wait until each client gets everything, as its caller."""
        await asyncio.gather(*map(self._served, self.seats))

    async def _served(self, seat: Seat) -> None:
        async def is_served() -> bool:
            if await seat.everything(self.colleague(seat)):
                return True
            assert not seat.mixed_up, f"{seat.who} ({seat.era}) got: {seat.mixed_up[0]}"
            if seat.is_logged_out and seat.era == MODERN:
                self.lost_logins += 1
                seat.is_logged_out = False
                await self.identity.begin(seat.who, self.cluster)
            return False

        await until(is_served, f"{seat.who} ({seat.era}) is served; last: {seat.latest}", 2 * PATIENCE)

    async def tokens_end(self) -> None:
        """All access tokens end, and all clients call at once through all gateways, none of which is being killed."""
        await _pause(self._new_until)
        before = self.identity.renewals()
        await asyncio.to_thread(self.identity.world.control, expire_all=True)
        calls = [seat.ask(Sent.call("write_page")) for seat in self.seats for _ in range(3)]
        answers = await asyncio.gather(*calls)
        assert all("-secret" in text for text in answers), answers
        self.renewed.append(self.identity.renewals() - before)
        self._new_until = time.monotonic() + _NEW

    async def kill(self, gateway: Gateway) -> None:
        """Kill a gateway while all use it, and start it again."""
        using = [asyncio.create_task(seat.everything(self.colleague(seat))) for seat in self.seats]
        await asyncio.to_thread(gateway.kill)
        await asyncio.gather(*using)
        await asyncio.gather(self.all_served(), asyncio.to_thread(self.cluster.restart, gateway))

    async def all_hear(self) -> None:
        """Wait until each client that listens hears of a change at its caller's server."""
        await asyncio.gather(*(self._hears(seat) for seat in self.seats if seat.era == MODERN))

    async def _hears(self, seat: Seat) -> None:
        before = seat.updates

        async def has_heard() -> bool:
            await seat.ask(Sent.call("touch_note"))
            return seat.updates > before

        await until(has_heard, f"{seat.who} hears of a change", PATIENCE)

    def mixed_up(self) -> list[str]:
        """What reached the wrong caller, a log, or a session of another caller."""
        found = [f"{seat.who} ({seat.era}): {text}" for seat in self.seats for text in seat.mixed_up]
        logs = {gateway.name: gateway.log for gateway in self.cluster.gateways}
        found += [f"the log of {name} has {who}'s" for name, log in logs.items() for who in CALLERS
                  if f"{who}-secret" in log]  # fmt: skip
        world = self.identity.world
        hidden = {*world.secrets(), *map(self.identity.bearer, CALLERS)}
        found += [f"the log of {name} has {one[:10]}" for name, log in logs.items() for one in hidden if one in log]
        told = world.http.get(world.server_url.replace("/mcp", "/control")).raise_for_status().json()
        if told["mixed"]:
            found.append(f"{told['mixed']} requests were sent in another caller's session")
        return found


@asynccontextmanager
async def office(cluster: Cluster, identity: Identity) -> AsyncIterator[Office]:
    """All clients, logged in and listening."""
    async with AsyncExitStack() as stack:
        for who in CALLERS:
            await identity.begin(who, cluster)
        seats = []
        for who, era in itertools.product(CALLERS, (LEGACY, MODERN)):
            http = await stack.enter_async_context(httpx2.AsyncClient(timeout=PATIENCE, trust_env=False))
            client = HttpClient(cluster.address, era, http)
            client.headers["Authorization"] = f"Bearer {identity.bearer(who)}"
            if era == LEGACY:
                await until(client.is_let_in, f"{who} opens a session", PATIENCE)
                await client.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
            seats.append(Seat(who, era, client))
        made = Office(cluster, identity, seats)
        await made.all_served()
        for seat in seats:
            if seat.era == LEGACY:
                for uri in NOTES:
                    await seat.ask(Sent("resources/subscribe", {"uri": uri}, uri))
        listening = [asyncio.create_task(seat.listen()) for seat in seats]
        try:
            yield made
        finally:
            for task in listening:
                task.cancel()
            await asyncio.wait(listening)


async def _pause(end: float) -> None:
    await until(lambda: time.monotonic() >= end, "a pause is over", PATIENCE)
