"""A host of MCP Apps in a real browser: shows a tool's page in a sandboxed frame and passes on what the page asks.

It knows only the gateway, as a host does: it learns of the page from the tool's definition, reads it, and calls tools
for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.e2e.browsers import browser_page
from tests.e2e.extended import APPS, called, declaring, listed
from tests.e2e.raw_clients import HttpClient

_HOST = """<!doctype html><title>host</title><script>
const send = (frame, message) => frame.contentWindow.postMessage({jsonrpc: "2.0", ...message}, "*");
const answers = {
  "ui/initialize": (asked) => ({protocolVersion: asked.protocolVersion, hostInfo: {name: "host", version: "1"},
    hostCapabilities: {serverTools: {}, openLinks: {}, logging: {}}, hostContext: {theme: "light"}}),
  "tools/call": (asked) => callTool(asked.name, asked.arguments || {}),
};
function show(html, result) {
  const frame = document.createElement("iframe");
  frame.sandbox = "allow-scripts";
  frame.srcdoc = html;
  addEventListener("message", async ({source, data}) => {
    if (source !== frame.contentWindow || !data.method) return;
    if (data.method === "ui/notifications/initialized") {
      send(frame, {method: "ui/notifications/tool-input", params: {arguments: {}}});
      send(frame, {method: "ui/notifications/tool-result", params: result});
    }
    if (data.id === undefined) return;
    const answer = answers[data.method];
    send(frame, {id: data.id, result: answer ? await answer(data.params || {}) : {}});
  });
  document.body.append(frame);
}
</script><body>"""


@asynccontextmanager
async def shown(client: HttpClient, tool: str) -> AsyncIterator[tuple[Any, list[str], list[str]]]:
    """The frame with the page of a tool that was called, what the page has called, and the browser's problems."""
    definition = (await listed(client, declaring(APPS)))[tool]
    uri = definition["_meta"]["ui"]["resourceUri"]
    [content] = (await client.ask("resources/read", {"uri": uri, **declaring(APPS)}))["result"]["contents"]
    assert content["mimeType"] == "text/html;profile=mcp-app"
    result = await called(client, tool, declaring(APPS))
    calls: list[str] = []

    async def call_tool(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        calls.append(name)
        return dict(await called(client, name, declaring(APPS), **arguments))

    async with browser_page() as (page, problems):
        await page.expose_function("callTool", call_tool)
        await page.set_content(_HOST)
        await page.evaluate("([html, result]) => show(html, result)", [content["text"], result])
        yield page.frame_locator("iframe"), calls, problems
