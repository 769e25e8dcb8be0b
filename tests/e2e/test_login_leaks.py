"""A whole life with a login, after which none of its secrets is anywhere that people or programs look."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp import Client

from mcp_optimizer.domain.caller import Risk, Role
from tests.e2e.logging_in import given, person_at, servers
from tests.e2e.made_keys import made_key
from tests.e2e.raw_clients import MODERN, PATIENCE, HttpClient, message
from tests.e2e.running import COMMAND, command, until_found
from tests.e2e.test_company_in_a_browser import SETTINGS
from tests.e2e.test_http_upstreams import free_port
from tests.e2e.test_own_logins import ENTRY, Gateway
from tests.e2e.test_own_logins import log_in as own_log_in
from tests.servers.authorization_grants import EXCHANGE
from tests.servers.login_world import LoginWorld, issuer_world, login_world, running
from tests.waiting import until

PAGES = ("", "figures", "catalog", "search?q=note", "tools/notes/whoami", "metrics", "health", "ready")
DEBUG = ("--log-level", "debug", "--log-format")


class Evidence:
    """Everything that the processes said, wrote and showed, by where it was found."""

    def __init__(self) -> None:
        self.found: dict[str, bytes] = {}
        self.secrets: set[str] = set()
        """Those that only the gateway knows."""

    def add(self, place: str, text: str | bytes) -> None:
        self.found[place] = self.found.get(place, b"") + (text if isinstance(text, bytes) else text.encode())

    def look_at(self, process: asyncio.subprocess.Process, name: str) -> None:
        for part in ("cmdline", "environ"):
            self.add(f"/proc/{name}/{part}", Path(f"/proc/{process.pid}/{part}").read_bytes())

    async def run(self, *arguments: object) -> str:
        done = await command(*arguments)
        self.add(" ".join(map(str, arguments[:2])), done.out + done.err)
        return done.out + done.err


def leaks(found: Mapping[str, bytes], secrets: Iterable[str]) -> list[str]:
    """Where a secret is, and its beginning."""
    return [f"{place}: {secret[:10]}" for place, text in found.items() for secret in secrets if secret.encode() in text]


@asynccontextmanager
async def http_gateway(options: list[object], log: Path) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """A gateway that writes its log to a file, and says where it is when it crashes."""
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            *map(str, ["serve", "--http", "127.0.0.1:0", *options, *DEBUG, "human"]),
            stdout=out,
            stderr=out,
            env={**os.environ, "PYTHONFAULTHANDLER": "1"},
        )
    try:
        listening = re.compile(r"http://\S+/mcp")
        await until(lambda: listening.search(log.read_text()), "the gateway listens", 30)
        found = listening.search(log.read_text())
        assert found is not None
        yield found.group(), process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def log_in(world: LoginWorld, evidence: Evidence, options: list[object], form: str) -> None:
    """By paste. Only the address that a person must open may contain the state."""
    async with person_at("login", "notes", "--paste", *options, *DEBUG, form, cold=True) as person:
        address = await person.address()
        [state] = parse_qs(urlsplit(address).query)["state"]
        evidence.secrets.add(state)
        evidence.look_at(person.process, f"login {form}")
        done = await person.answer(await asyncio.to_thread(world.browser, address) + "\n")
    assert done.code == 0, done.err
    evidence.add(f"login {form}", (done.out + done.err).replace(address, "ADDRESS"))


async def use(world: LoginWorld, evidence: Evidence, address: str) -> None:
    """Calls that work, cannot be refreshed for a while, are refreshed, need more permissions, and are revoked."""
    async with Client(address) as client, httpx2.AsyncClient(trust_env=False) as http:
        await until_found(client, "the client and the scopes of the token", "whoami")

        async def call(tool: str) -> str:
            said = str(await client.call_tool("call_tool", {"tool_name": tool, "parameters": {}}))
            evidence.add("results", said)
            return said

        assert "mcp:read" in await call("whoami")
        await asyncio.to_thread(world.control, expire_all=True, fail_refresh=503)
        assert "503" in await call("whoami")
        await asyncio.to_thread(world.control, fail_refresh=0)

        async def recovers() -> bool:
            return "mcp:read" in await call("whoami")

        await until(recovers)
        assert world.counts()["refreshes"] == 1
        assert "(mcp:write): run `mcp-optimizer login notes`" in await call("write_note")
        await asyncio.to_thread(world.control, revoke_all=True)
        assert "mcp-optimizer login notes" in await call("whoami")
        for page in PAGES:
            response = await http.get(address.removesuffix("mcp") + page)
            assert response.status_code in (200, 503), page
            evidence.add(f"/{page}", response.content)


@pytest.mark.slow
@pytest.mark.promise("secrets-redacted")
async def test_no_secret_of_a_login_is_anywhere(tmp_path: Path) -> None:
    evidence, log = Evidence(), tmp_path / "gateway.log"
    with login_world(seconds=60, methods=("client_secret_post",)) as world:
        options = servers(tmp_path, world)
        await log_in(world, evidence, options, "json")
        async with http_gateway(options, log) as (address, process):
            await use(world, evidence, address)
            evidence.look_at(process, "serve")
            await log_in(world, evidence, options, "human")
            shown = [["servers"], ["doctor"], ["auth", "status"], ["report"]]
            done = await asyncio.gather(*(evidence.run(*one, "--json", *options, *DEBUG, "json") for one in shown))
            assert all(done)
            process.send_signal(signal.SIGABRT)
            assert await process.wait() == -signal.SIGABRT
        evidence.add("gateway.log", log.read_bytes())
        assert b"Fatal Python error: Aborted" in evidence.found["gateway.log"]
        kept = b"".join(path.read_bytes() for path in tmp_path.glob("catalog.db*"))
        assert "Logged out of notes" in await evidence.run("logout", "notes", *options, *DEBUG, "json")
        secrets = {*world.secrets(), *evidence.secrets}
    evidence.add("catalog.db", kept)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            evidence.add(str(path.relative_to(tmp_path)), path.read_bytes())
    kinds = {secret.partition("-SECRET-")[0] for secret in secrets if "-SECRET-" in secret}
    assert {"at", "rt", "cs"} <= kinds, "there are tokens and a client secret to look for"
    assert b"notes" in kept, "the database is the one that was used"
    assert leaks(evidence.found, secrets) == []
    for secret in secrets:
        assert leaks({**evidence.found, "planted": f"token={secret}".encode()}, secrets), "it can be found"


@asynccontextmanager
async def own_gateway(
    company: LoginWorld, desk: str, crm: str, folder: Path
) -> AsyncIterator[tuple[Gateway, asyncio.subprocess.Process]]:
    """Callers with keys log in to `desk`, and the company's tokens are exchanged for those of `crm`."""
    client = company.add_client(grant_types=[EXCHANGE])
    exchange = {name: client[name] for name in ("client_id", "client_secret")}
    exchanging = {"principal": "caller", "exchange": {"issuer": company.issuer, **exchange}}
    options = given({"desk": {"url": desk, **ENTRY}, "crm": {"url": crm, "auth": exchanging}}, folder)
    settings = folder / "settings.toml"
    issuer = f'[[token_issuers]]\nname = "corp"\nissuer = "{company.issuer}"\n'
    settings.write_text(f'encoder = "none"\nrequire_auth = true\n{issuer}')
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("MCP_OPTIMIZER_DATABASE", str(folder / "catalog.db"))
        keys = {"ada": await made_key("ada", Risk.DESTRUCTIVE, role=Role.MANAGE)}
    log = folder / "gateway.log"
    options += ["--settings", settings]
    async with http_gateway(options, log) as (address, process):
        yield Gateway(address, keys, log, options), process


async def use_as(evidence: Evidence, gateway: Gateway, bearer: str, tool: str, answer: str) -> None:
    """Call a tool with a key or token until the answer is this."""
    async with httpx2.AsyncClient(timeout=PATIENCE, trust_env=False) as http:
        client = HttpClient(gateway.address, MODERN, http)
        client.headers["Authorization"] = f"Bearer {bearer}"
        params = {"name": "call_tool", "arguments": {"tool_name": tool, "parameters": {}}}
        looking = {"name": "find_tool", "arguments": {"tool_description": "who calls"}}

        async def is_answered() -> bool:
            said = str([await client.exchange(message("tools/call", one, 1, MODERN)) for one in (params, looking)])
            evidence.add("results", said)
            return answer in said

        await until(is_answered, f"{tool}: {answer}", PATIENCE)


@pytest.mark.slow
@pytest.mark.promise("secrets-redacted")
async def test_no_secret_of_callers_own_logins_and_exchanges_is_anywhere(tmp_path: Path) -> None:
    evidence = Evidence()
    with (
        issuer_world() as company,
        login_world(seconds=60, server="tests.servers.personal") as world,
        running("tests.servers.personal", "--issuer", company.issuer) as crm,
    ):
        async with own_gateway(company, world.server_url, crm, tmp_path) as (gateway, process):

            def token(who: str) -> str:
                evidence.secrets.add(made := company.sign(aud=gateway.address, sub=who, exp=int(time.time()) + 600))
                return made

            ada, bob = token("ada"), token("bob")
            await own_log_in(world, gateway, "ada")
            await use_as(evidence, gateway, gateway.keys["ada"], "desk__whoami", "ada-secret")
            await use_as(evidence, gateway, ada, "crm__whoami", "ada-secret")
            await use_as(evidence, gateway, gateway.keys["ada"], "crm__whoami", "it uses a key")
            for switch, why in (({"fail_exchange": 503}, "503"), ({"exchange_returns": "same"}, "gave the token back")):
                company.control(**{"fail_exchange": 0, "exchange_returns": "", **switch})
                await use_as(evidence, gateway, bob, "crm__whoami", why)
            company.control(exchange_returns="", expire_all=True)
            await use_as(evidence, gateway, ada, "crm__whoami", "ada-secret")
            async with httpx2.AsyncClient(trust_env=False, headers={"X-API-Key": gateway.keys["ada"]}) as http:
                for page in (*PAGES, "logins", "mine", "callers"):
                    response = await http.get(f"{gateway.origin}/{page}")
                    assert response.status_code in (200, 404, 503), page
                    evidence.add(f"/{page}", response.content)
            evidence.look_at(process, "serve")
            shown = [["servers"], ["doctor"], ["auth", "status", "--caller", "*"], ["report"]]
            database = gateway.options[:4]
            await asyncio.gather(*(evidence.run(*one, "--json", *database, *DEBUG, "json") for one in shown))
            process.send_signal(signal.SIGABRT)
            assert await process.wait() == -signal.SIGABRT
        secrets = {*world.secrets(), *company.secrets(), *evidence.secrets, *gateway.keys.values()}
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.name != "mcp.json":
            evidence.add(str(path.relative_to(tmp_path)), path.read_bytes())
    assert b"Fatal Python error: Aborted" in evidence.found["gateway.log"]
    kinds = {secret.partition("-SECRET-")[0] for secret in secrets if "-SECRET-" in secret}
    assert {"at", "rt", "cs"} <= kinds, "there are tokens and a client secret to look for"
    assert leaks(evidence.found, secrets) == []
    for secret in secrets:
        assert leaks({**evidence.found, "planted": f"token={secret}".encode()}, [secret]), "it can be found"


async def sign_in(company: LoginWorld, evidence: Evidence, home: str, http: httpx2.AsyncClient) -> None:
    """As a browser does. Only the addresses to which it is sent may contain the state and the code."""
    begun = await http.get(f"{home}/login/with/corp")
    assert begun.status_code == 303, begun.text
    asked = begun.headers["location"]
    for name in ("state", "nonce", "code_challenge"):
        evidence.secrets.update(parse_qs(urlsplit(asked).query)[name])
    done = await asyncio.to_thread(company.browser, asked)
    evidence.secrets.update(parse_qs(urlsplit(done).query)["code"])
    kept = dict(http.cookies)
    entered = await http.get(done)
    evidence.add("/login/done", entered.content)
    evidence.secrets |= {*kept.values(), *dict(http.cookies).values()}


@pytest.mark.slow
@pytest.mark.promise("secrets-redacted")
async def test_no_secret_of_signing_in_with_a_provider_is_anywhere(tmp_path: Path) -> None:
    evidence, port = Evidence(), free_port()
    home = f"http://localhost:{port}"
    with issuer_world() as company:
        client = company.add_client(redirect_uris=[f"{home}/login/done"])
        settings = tmp_path / "settings.toml"
        said = SETTINGS.format(port=port, issuer=company.issuer, **client)
        settings.write_text(f'encoder = "none"\nrequire_auth = true\n{said}')
        options = [*given({}, tmp_path), "--settings", settings]
        log = tmp_path / "gateway.log"
        async with http_gateway([*options, "--http", f"127.0.0.1:{port}"], log) as (_, process):
            async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE) as http:
                for claims in ({"role": "none"}, {"role": "see"}):
                    company.control(id_claims=claims)
                    await sign_in(company, evidence, home, http)
                company.control(fail_code=503)
                await sign_in(company, evidence, home, http)
                for page in (*PAGES, "logins", "mine", "callers"):
                    response = await http.get(f"{home}/{page}")
                    assert response.status_code in (200, 404, 503), page
                    evidence.add(f"/{page}", response.content)
                assert b"Sign out" in evidence.found["/callers"]
            evidence.look_at(process, "serve")
            shown = [["doctor"], ["audit"], ["report"]]
            await asyncio.gather(*(evidence.run(*one, "--json", *options[:4], *DEBUG, "json") for one in shown))
            process.send_signal(signal.SIGABRT)
            assert await process.wait() == -signal.SIGABRT
        secrets = {*company.secrets(), *evidence.secrets}
    for path in tmp_path.rglob("*"):
        if path.is_file() and path != settings:
            evidence.add(str(path.relative_to(tmp_path)), path.read_bytes())
    assert b"dashboard/sign-in" in evidence.found["audit --json"]
    assert client["client_secret"] in secrets
    assert len(secrets) > 12, "there are codes, ID tokens, cookies and what belongs to an attempt"
    assert leaks(evidence.found, secrets) == []
    for secret in secrets:
        assert leaks({**evidence.found, "planted": f"token={secret}".encode()}, [secret]), "it can be found"
