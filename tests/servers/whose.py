"""An MCP server whose tools say for whom it acts: by its variable `WHO` on stdio, by the header `X-Who` over HTTP.

python -m tests.servers.whose                on stdio
python -m tests.servers.whose --port P       prints its address once it listens (port 0: any free one)

It lists `act_for_WHO`, which answers with `WHO`, its process and all headers whose names begin with `x-`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import sys
from collections.abc import Mapping
from typing import Any

NOBODY = "nobody"


def answered(message: dict[str, Any], who: str, headers: Mapping[str, str]) -> dict[str, Any] | None:
    """The answer to a message of the legacy protocol; None if it gets none."""
    if "id" not in message:
        return None
    about = {"who": who, "process": os.getpid(), "headers": {k: v for k, v in headers.items() if k.startswith("x-")}}
    tool = {
        "name": f"act_for_{re.sub('[^A-Za-z0-9]', '_', who)}",
        "description": "Act for a person",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
    }
    results: dict[str, dict[str, Any]] = {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "whose", "version": "1"},
        },
        "ping": {},
        "tools/list": {"tools": [tool]},
        "tools/call": {"content": [{"type": "text", "text": json.dumps(about)}]},
    }
    if (result := results.get(str(message.get("method")))) is None:
        return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "Method not found"}}
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def on_stdio() -> None:
    who = os.environ.get("WHO", NOBODY)
    for line in sys.stdin:
        if (answer := answered(json.loads(line), who, {})) is not None:
            print(json.dumps(answer), flush=True)


def over_http(port: int) -> None:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    async def take(request: Request) -> Response:
        answer = answered(await request.json(), request.headers.get("x-who", NOBODY), request.headers)
        return Response(status_code=202) if answer is None else JSONResponse(answer)

    listening = socket.create_server(("127.0.0.1", port))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
    app = Starlette(routes=[Route("/mcp", take, methods=["POST"])])
    uvicorn.Server(uvicorn.Config(app, log_level="critical")).run(sockets=[listening])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    options = parser.parse_args()
    if options.port is None:
        on_stdio()
    else:
        over_http(options.port)


if __name__ == "__main__":
    main()
