"""What becomes of logins when the entry of their server changes while the gateway runs."""

from __future__ import annotations

from dataclasses import replace

from mcp_optimizer.config.serverfile.spec import AuthSpec, ServerSpec, Transport
from mcp_optimizer.identity.logins import Logins

SPEC = ServerSpec("far", Transport.HTTP, url="https://far.example/mcp")
COMMAND = ServerSpec("far", Transport.HTTP, url="https://far.example/mcp", auth=AuthSpec(headers_command="print"))


async def test_another_address_under_the_same_name_gets_a_login_of_its_own() -> None:
    logins = Logins()
    first = logins.of(SPEC)
    assert logins.of(SPEC) is first
    assert logins.of(replace(SPEC, description="Far away")) is first
    assert logins.of(replace(SPEC, url="https://evil.example/mcp")) is not first
    await logins.close()


async def test_another_command_for_headers_is_another_source_of_them() -> None:
    logins = Logins()
    first = logins.of(COMMAND)
    assert logins.of(COMMAND) is first
    other = replace(COMMAND, auth=AuthSpec(headers_command="other"))
    assert logins.of(other) is not first
    logins.forget("far")
    assert logins.of(other) is not first
    await logins.close()
