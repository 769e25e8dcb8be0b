"""What a form of ours sent, read within limits, and which page it was sent to. Called by the pages with forms."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import parse_qs, quote, unquote

from starlette.requests import Request

_LONGEST = 65_536
_MOST_FIELDS = 200
_PATIENCE = 10.0


async def form_of(request: Request, longest: int = _LONGEST) -> Mapping[str, str] | None:
    """The fields of a form, each once; None if it is larger or slower than any form of ours."""
    body = bytearray()
    try:
        async with asyncio.timeout(_PATIENCE):
            async for chunk in request.stream():
                body += chunk
                if len(body) > longest:
                    return None
    except TimeoutError:
        return None
    try:
        fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        return None
    return {name: values[0] for name, values in fields.items()}


def sent_parts(request: Request, under: str) -> list[str]:
    """The parts of the path behind `under`, as they were sent: a name may contain a slash, which is then encoded."""
    sent: bytes = request.scope.get("raw_path") or quote(request.scope["path"]).encode()
    path = sent.partition(b"?")[0].decode("ascii", "replace")
    return [unquote(part) for part in path.removeprefix(f"{under}/").split("/")]
