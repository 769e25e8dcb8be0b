"""`doctor`, with a real process or socket for each way in which a server fails."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from rich.cells import cell_len

from tests.conftest import PLAIN_SERVER, Entry, WriteServers, plain_server
from tests.e2e.running import COMMAND, command

NODE_STACK = "Error: GITHUB_TOKEN is required\\n    at [eval]:1:30\\n\\nNode.js v20.20.2"


def refuse(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    """Answers /401 with status 401 and so on, and /page with a page."""
    environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    first = environ["PATH_INFO"].split("/")[1]
    status = first if first.isdecimal() else "200" if first == "page" else "404"
    start_response(f"{status} -", [("content-type", "text/html")])
    return [b"<html>Welcome</html>"]


class ManyAtOnce(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class Quiet(WSGIRequestHandler):
    def log_message(self, *_arguments: Any) -> None:
        """Say nothing."""


@contextmanager
def serving(context: ssl.SSLContext | None = None) -> Iterator[int]:
    with make_server("127.0.0.1", 0, refuse, ManyAtOnce, Quiet) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()


def own_certificate(folder: Path) -> ssl.SSLContext:
    """A certificate that nobody trusts."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(1))
    file = folder / "own.pem"
    file.write_bytes(
        made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


def script(code: str, *arguments: str) -> Entry:
    return {"command": sys.executable, "args": ["-c", code, *arguments]}


def closed_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        return int(taken.getsockname()[1])


def entries(port: int, tls: int, silent: int) -> dict[str, Entry]:
    here = f"http://127.0.0.1:{port}"
    return {
        "well": plain_server("well"),
        "401": {"url": f"{here}/401/mcp", "headers": {"X-Key": "k"}},
        "401 known": {"url": f"{here}/401/mcp", "headers": {"Authorization": "Bearer old"}},
        "403": {"url": f"{here}/403/mcp", "headers": {"X-Key": "k"}},
        "404": {"url": here, "type": "http"},
        "404 path": {"url": f"{here}/404/here", "type": "http"},
        "405": {"url": f"{here}/405/mcp", "type": "http"},
        "405 sse": {"url": f"{here}/405/sse", "type": "sse"},
        "page": {"url": f"{here}/page/mcp", "type": "http"},
        "page sse": {"url": f"{here}/page/sse", "type": "sse"},
        "closed": {"url": f"http://127.0.0.1:{closed_port()}/mcp"},
        "dns": {"url": "http://gateway.invalid/mcp"},
        "certificate": {"url": f"https://127.0.0.1:{tls}/mcp"},
        "certificate sse": {"url": f"https://127.0.0.1:{tls}/sse"},
        "no tls": {"url": f"https://127.0.0.1:{port}/mcp"},
        "mute": {"url": f"http://127.0.0.1:{silent}/mcp"},
        "no scheme": {"url": "example.com/mcp"},
        "no scheme here": {"url": "localhost:3000/mcp"},
        "no npx": {"command": "npx", "env": {"PATH": "/nowhere"}},
        "no uvx": {"command": "uvx", "env": {"PATH": "/nowhere"}},
        "no folder": script("import sys; sys.exit('Error: no folder can be read')", "/nowhere/at/all"),
        "python": script("import os\nos.environ['TRACKER_TOKEN']"),
        "node": script(f"import sys; sys.exit('{NODE_STACK}')"),
        "terminal": script("import sys; sys.exit('the input device is not a TTY')"),
        "done": script(""),
        "printed help": script("print('usage: server stdio')"),
        "hangs": script("import sys; print('Waiting for a login', file=sys.stderr, flush=True); sys.stdin.read()"),
        "junk": script("import sys; print('Hello!', flush=True); sys.stdin.read()"),
        "chatty": script(
            f"import runpy, sys; print('Hello!', flush=True); sys.argv = ['plain', 'chatty']; "
            f"runpy.run_path({str(PLAIN_SERVER)!r}, run_name='__main__')"
        ),
    }


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("doctor")
    with ExitStack() as stack:
        port, tls = stack.enter_context(serving()), stack.enter_context(serving(own_certificate(folder)))
        silent = stack.enter_context(closing(socket.create_server(("127.0.0.1", 0))))
        config = folder / "mcp.json"
        config.write_text(json.dumps({"mcpServers": entries(port, tls, silent.getsockname()[1])}))
        own = {name: str(folder) for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "HOME")}
        done = subprocess.run(
            [*COMMAND, "doctor", "--json", "--database", "none", "--start-timeout", "12", "--config", str(config)],
            stdout=subprocess.PIPE,
            env={**os.environ, **own},
            check=False,
        )
        said = json.loads(done.stdout)
        assert (done.returncode, said["healthy"]) == (1, False)
        yield {row["name"]: row for row in said["servers"]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind", "reason", "advice"),
    [
        ("401", "unauthorised", "HTTP status 401", "or try `mcp-optimizer login 401`"),
        ("401 known", "unauthorised", "HTTP status 401", "they are wrong, or have expired"),
        ("403", "forbidden", "HTTP status 403", "lacks a right (a scope)"),
        ("404", "not_found", "HTTP status 404", "/mcp."),
        ("404 path", "not_found", "HTTP status 404", "Check the path of"),
        ("405", "transport", "HTTP status 405", '"type": "sse"'),
        ("405 sse", "transport", "HTTP status 405", '"type": "http"'),
        ("page", "not_mcp", "a web page instead of MCP", "a page for browsers"),
        ("page sse", "not_mcp", "a web page instead of MCP", "a page for browsers"),
        ("closed", "unreachable", "nothing answers at its url", "that its server is running"),
        ("dns", "host", "the host of its url has no address", "Check the spelling of http://gateway.invalid/mcp"),
        ("certificate", "tls", "its certificate is not trusted", "SSL_CERT_FILE"),
        ("certificate sse", "tls", "its certificate is not trusted", "SSL_CERT_FILE"),
        ("no tls", "tls", "it does not speak TLS", "write http://"),
        ("mute", "silent", "did not answer within 12 s", "that its server is running"),
        ("no scheme", "entry", "did you mean https:// and the rest as it is?", "Correct its entry"),
        ("no scheme here", "entry", "did you mean http:// and the rest as it is?", "Correct its entry"),
        ("no npx", "command", "'npx' was not found", "Node.js"),
        ("no uvx", "command", "'uvx' was not found", "Install uv"),
        ("no folder", "exited", "Error: no folder can be read", 'Argument 3 of its "args" is a path'),
        ("python", "exited", "it said: KeyError: 'TRACKER_TOKEN'", '"env" of its entry'),
        ("node", "exited", "it said: Error: GITHUB_TOKEN is required", '"env" of its entry'),
        ("terminal", "exited", "not a TTY", 'take "-t"'),
        ("done", "exited", "it exited with code 0", 'such as "stdio"'),
        ("printed help", "exited", "it exited with code 0; it printed: 'usage: server stdio'", 'such as "stdio"'),
        ("hangs", "silent", "did not answer within 12 s; it last said: Waiting for a login", "--start-timeout"),
        ("junk", "not_mcp", "prints on its stdout: 'Hello!'", "only MCP messages to stdout"),
    ],
)  # fmt: skip
def test_each_failure_has_its_kind_its_reason_and_its_advice(
    rows: dict[str, Any], name: str, kind: str, reason: str, advice: str
) -> None:
    row = rows[name]
    assert row["failure"] == kind, row
    assert reason in row["reason"]
    assert advice in row["advice"]


@pytest.mark.slow
def test_a_server_that_prints_among_its_messages_runs_and_is_named(rows: dict[str, Any]) -> None:
    assert (rows["chatty"]["status"], rows["chatty"]["prints"]) == ("running", "Hello!")
    assert "prints" not in rows["well"]


async def test_no_servers_is_a_problem_and_says_what_to_do(write_servers: WriteServers) -> None:
    config = write_servers({})
    done = await command("doctor", "--config", config, "--database", "none")
    assert done.code == 1
    assert "No servers are configured" in done.out
    assert "no problems" not in done.out
    said = (await command("doctor", "--config", config, "--database", "none", "--json")).json
    assert (said["healthy"], said["servers"]) == (False, [])
    assert "mcpServers" in said["advice"]


async def test_only_disabled_servers_is_a_problem_and_one_that_runs_beside_them_is_none(
    write_servers: WriteServers,
) -> None:
    off = {**plain_server("off"), "disabled": True}
    done = await command("doctor", "--config", write_servers({"off": off}), "--database", "none")
    assert done.code == 1
    assert "Every server is disabled" in done.out
    both = write_servers({"off": off, "on": plain_server("on")})
    assert (await command("doctor", "--config", both, "--database", "none")).code == 0


async def test_the_table_fits_eighty_columns_whatever_the_names_are(write_servers: WriteServers) -> None:
    names = [
        "a",
        "日本語サーバーのとても長い名前のサーバーです",
        "x" * 70,
        *(f"server {number}" for number in range(40)),
    ]
    config = write_servers({name: {"command": "no-such-command-" + "y" * 60} for name in names})
    done = await command("doctor", "--config", config, "--database", "none", env={"COLUMNS": "80"})
    lines = done.out.splitlines()
    assert max(map(cell_len, lines)) <= 80
    # The texts begin in one column, after the widest name.
    assert {line.find("the command") for line in lines if line.startswith("✗ server")} == {27}
