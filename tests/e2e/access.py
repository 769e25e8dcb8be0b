"""Everything that a caller can ask of a gateway, and in a word what it was answered; for the matrix of callers."""

from __future__ import annotations

import json
from typing import Any, Protocol

from tests.e2e.raw_clients import LEGACY, MODERN

ALLOWED, OUT = "other", "vault"
"""A server that every key includes, and one that not every key does."""


class Asking(Protocol):
    """A client of either transport."""

    era: str

    async def reply(self, method: str, params: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """The HTTP status (200 on stdio), and the JSON-RPC response if there is one."""
        ...


def own(name: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
    return "tools/call", {"name": name, "arguments": arguments}


def calling(tool: str, server: str = "") -> tuple[str, dict[str, Any]]:
    return own("call_tool", tool_name=tool, parameters={"text": "hello"}, **({"server_name": server} if server else {}))


def questions(era: str, foreign_id: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """By a name for the table. `foreign_id`: a result that another caller kept."""
    wanted = {
        "tools/list": ("tools/list", {}),
        "find_tool": own("find_tool", tool_description=f"the note of {OUT}", limit=20),
        "list_tools": own("list_tools"),
        "list_tools of the server": own("list_tools", server=OUT),
        "call a tool that reads": calling(f"read_{OUT}"),
        "call it with its server": calling(f"read_{OUT}", OUT),
        "call it by its own name": ("tools/call", {"name": f"read_{OUT}", "arguments": {"text": "hello"}}),
        "call a tool that writes": calling(f"write_{OUT}"),
        "call a tool that deletes": calling(f"delete_{OUT}"),
        "call a tool of another server": calling(f"read_{ALLOWED}"),
        "read another's result": own("read_result", result_id=foreign_id),
        "prompts/list": ("prompts/list", {}),
        "prompts/get": ("prompts/get", {"name": f"prompt_{OUT}"}),
        "resources/list": ("resources/list", {}),
        "resources/templates/list": ("resources/templates/list", {}),
        "resources/read": ("resources/read", {"uri": f"{OUT}://note"}),
        "completion/complete": (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": f"prompt_{OUT}"}, "argument": {"name": "word", "value": "w"}},
        ),
    }
    if era == LEGACY:
        wanted |= {
            "ping": ("ping", {}),
            "resources/subscribe": ("resources/subscribe", {"uri": f"{OUT}://note"}),
            "resources/unsubscribe": ("resources/unsubscribe", {"uri": f"{OUT}://note"}),
            "logging/setLevel": ("logging/setLevel", {"level": "error"}),
        }
    else:
        wanted |= {"server/discover": ("server/discover", {})}
    return wanted


LISTS = {
    "tools/list",
    "find_tool",
    "list_tools",
    "list_tools of the server",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
}
"""Where what counts is whether the server's things are in the answer."""


def in_a_word(name: str, status: int, answer: dict[str, Any]) -> str:
    """`401`, `403`; `shown` or `hidden` for lists; `done`, `refused` (with the reason) or `unknown` for everything
    else.
    """
    if status != 200:
        return str(status)
    written = json.dumps(answer.get("error") or answer.get("result"))
    if "may not be called" in written:
        return "refused"
    is_error = "error" in answer or answer["result"].get("isError") is True
    if name in LISTS and not is_error:
        return "shown" if f"read_{OUT}" in written or f"prompt_{OUT}" in written or f"{OUT}://" in written else "hidden"
    return "unknown" if is_error else "done"


async def table(client: Asking, foreign_id: str) -> dict[str, str]:
    """Everything that this client was answered."""
    found = {}
    for name, (method, params) in questions(client.era, foreign_id).items():
        found[name] = in_a_word(name, *await client.reply(method, params))
    return found


def expected(era: str, column: str) -> dict[str, str]:
    """What the documentation promises, by the column of its table."""
    names = questions(era, "")
    if column in ("401", "403"):
        return dict.fromkeys(names, column)
    found = {name: "shown" if name in LISTS else "done" for name in names}
    found |= {"tools/list": "hidden", "read another's result": "unknown"}
    refusing = {"call a tool that writes": "refused", "call a tool that deletes": "refused"}
    if column == "reads":
        found |= refusing
    if column == "reads by scope":
        found |= dict.fromkeys(refusing, "403")
    if column in ("without the server", "denied by a rule"):
        found |= dict.fromkeys(LISTS, "hidden")
        word = "unknown" if column == "without the server" else "refused"
        found |= {name: word for name in names if name.startswith("call ") and "another" not in name}
        found |= dict.fromkeys(("prompts/get", "resources/read", "completion/complete"), "unknown")
        if column == "without the server":
            found["list_tools of the server"] = "unknown"
        if era == LEGACY:
            found["resources/subscribe"] = "unknown"
    return found


ERAS = (LEGACY, MODERN)
