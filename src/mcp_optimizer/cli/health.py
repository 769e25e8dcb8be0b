"""`health`: whether a gateway answers over HTTP, as an exit code. For containers and monitors that have no curl.

Uses the standard library only, because it runs every few seconds. Starts nothing and reads no server file.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import sys
from typing import Annotated
from urllib.parse import urlsplit

import typer

from mcp_optimizer.cli.command_options import JsonFlag, say_passed_over
from mcp_optimizer.cli.terminal import print_json
from mcp_optimizer.config.settings import load_settings
from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.runtime.terminal_text import in_a_line

_USUAL = "127.0.0.1:8765"
_MOST_BYTES = 10_000

_Url = Annotated[
    str | None,
    typer.Argument(
        help="Address of the gateway. Default: the address in the settings, that of the gateway that runs with your "
        "servers, or http://127.0.0.1:8765.",
        show_default=False,
    ),
]
_At = Annotated[str | None, typer.Option("--http", metavar="HOST:PORT", help="The same.", show_default=False)]
_Ready = Annotated[
    bool, typer.Option("--ready", help="Ask whether tools can be found and called, not only whether it answers.")
]
_Patience = Annotated[float, typer.Option("--timeout", help="Seconds to wait for the answer.", min=0.1, max=60.0)]


def register(app: typer.Typer) -> None:
    app.command()(health)


def health(
    url: _Url = None, at: _At = None, ready: _Ready = False, timeout: _Patience = 3.0, as_json: JsonFlag = False
) -> None:
    """Ask a gateway over HTTP whether it is healthy. Exit code 0 if it is, 1 if not."""
    address = url or at or _own_address()
    problem = asked(address, "/ready" if ready else "/health", timeout)
    if as_json:
        print_json({"healthy": not problem, "address": address, **({"problem": problem} if problem else {})})
    else:
        said = in_a_line(f"not healthy: {problem}" if problem else f"healthy: {address}")
        print(said, file=sys.stderr if problem else sys.stdout)
    if problem:
        sys.exit(1)


def _own_address() -> str:
    settings = load_settings({})
    say_passed_over(settings)
    if settings.http is None:
        from mcp_optimizer.app.control.gateway_client import address_of_running

        return address_of_running(settings) or f"http://{_USUAL}"
    host, port = settings.http_address
    with contextlib.suppress(ValueError):
        # A gateway that listens on all addresses also listens on this one.
        host = "localhost" if ipaddress.ip_address(host).is_unspecified else host
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def asked(url: str, path: str, timeout: float) -> str:
    """What is wrong with the gateway at an address; empty if it reports that it is healthy. Follows no redirects."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme not in ("http", "https"):
        raise ConfigurationError(f"{url!r} is not an address such as http://{_USUAL}.")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    # More people know the full address for clients than its origin.
    below = parts.path.rstrip("/").removesuffix("/mcp")
    connection = kind(host, port, timeout=timeout)
    try:
        connection.request("GET", below + path, headers={"connection": "close"})
        response = connection.getresponse()
        response.read(_MOST_BYTES)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return in_a_line(f"{host} does not answer ({error or type(error).__name__})")
    finally:
        connection.close()
    return "" if response.status == 200 else f"{path} answers with HTTP status {response.status}"
