"""The files in `deploy/` as they are run: HAProxy takes its file, and the compose file's settings start a gateway."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from tests.cluster import HAPROXY_FILE, NAMES
from tests.conftest import plain_server
from tests.e2e.running import WARM, command
from tests.e2e.three_gateways import haproxy_program
from tests.postgres import Postgres
from tests.waiting import until

DEPLOY = HAPROXY_FILE.parent


@pytest.mark.parametrize("more", [{}, {"STICKY": "1"}])
def test_haproxy_takes_its_file_without_a_warning(more: dict[str, str]) -> None:
    program = haproxy_program()
    if program is None:
        pytest.skip("HAProxy is not installed")
    places = {f"GATEWAY_{number}": f"127.0.0.1:{8000 + number}" for number in (1, 2, 3)}
    environment = {**os.environ, **places, "LISTEN": "127.0.0.1:8000", **more}
    done = subprocess.run(
        [program, "-c", "-f", str(HAPROXY_FILE)], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "WARNING" in done.stderr) == (0, False), done.stderr
    broken = subprocess.run([program, "-c", "-f", "/dev/stdin"], input="frontend x\n  bnd :1\n", text=True, check=False)
    assert broken.returncode != 0


async def test_the_settings_of_the_compose_file_start_a_gateway_that_serves_callers_with_keys(
    tmp_path: Path, postgres: Postgres, postgres_url: str
) -> None:
    compose: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    given = {"POSTGRES_PASSWORD": "x", "MCP_OPTIMIZER_SECRET_KEY": "A" * 43 + "="}
    settings = {name: _filled(str(text), given) for name, text in _environment(compose).items()}
    # As the Kubernetes objects have it, for Prometheus, which asks each pod by its address.
    settings["MCP_OPTIMIZER_ALLOWED_HOSTS"] += ",10.1.2.3:8080"
    settings["MCP_OPTIMIZER_DASHBOARD_TOKEN"] = "a-token-of-tests-that-is-long-enough"
    settings |= {
        "MCP_OPTIMIZER_DATABASE": postgres_url,
        "MCP_OPTIMIZER_HTTP": "0.0.0.0:0",
        "XDG_CONFIG_HOME": f"{tmp_path}",
    }
    folder = tmp_path / "mcp-optimizer"
    folder.mkdir(exist_ok=True)
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"one": plain_server("one")}}))
    made = await command("key", "create", "--name", "me", "--json", env=settings)
    assert made.code == 0, made.err
    key = made.json["key"]
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(*WARM, "serve", env={**os.environ, **settings}, stderr=output)
    try:
        await until(lambda: _port(log), "it listens", 60)
        address = f"http://127.0.0.1:{_port(log)}"
        async with httpx2.AsyncClient(timeout=30) as http:

            async def is_ready() -> bool:
                # As a prober asks, which knows no name of ours.
                return (await http.get(f"{address}/ready", headers={"Host": "10.1.2.3:8080"})).status_code == 200

            await until(is_ready, timeout=60)
            ping = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": _HELLO}
            headers = {"Host": "localhost:8080", "Accept": "application/json, text/event-stream"}
            refused = await http.post(f"{address}/mcp", json=ping, headers=headers)
            served = await http.post(f"{address}/mcp", json=ping, headers={**headers, "Authorization": f"Bearer {key}"})
            token = {"Host": "10.1.2.3:8080", "Authorization": f"Bearer {settings['MCP_OPTIMIZER_DASHBOARD_TOKEN']}"}
            metrics = await http.get(f"{address}/metrics", headers=token)
        assert (refused.status_code, served.status_code, metrics.status_code) == (401, 200, 200)
        assert "mcp_optimizer_requests_in_flight" in metrics.text
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 60)


_HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}


def _port(log: Path) -> str:
    found = re.search(r"http://0\.0\.0\.0:(\d+)/mcp", log.read_text())
    return found[1] if found else ""


def _environment(compose: dict[str, Any]) -> dict[str, Any]:
    each = [compose["services"][name]["environment"] for name in NAMES]
    assert each[0] == each[1] == each[2]
    first: dict[str, Any] = each[0]
    return first


def _filled(text: str, given: dict[str, str]) -> str:
    """With the variables of the shell, as Compose puts them in."""
    return re.sub(r"\$\{(\w+):(?:-([^}]*)|\?[^}]*)\}", lambda found: given.get(found[1], found[2] or ""), text)
