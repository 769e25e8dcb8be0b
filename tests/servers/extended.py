"""An MCP server with extensions: tasks, skills and pages. On stdio, or with `--http PORT` over streamable HTTP.

Its tools, tasks and skills are those that the conformance suite's scenarios ask for. `--name` sets it apart from
another one, `--state FILE` keeps its tasks over a restart, `--skills FILE` has its skills as JSON: text by URI.
`--extra-skills FILE` has further entries for its list, sent as they are. `--page URI` is the page that its tools name.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import json
import secrets
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, ConfigDict

TASKS, SKILLS, APPS = (f"io.modelcontextprotocol/{name}" for name in ("tasks", "skills", "ui"))
ANY: dict[str, Any] = {"type": "object", "properties": {}}
PAGE = "ui://clock/page.html"
HTML = """<!doctype html><meta charset="utf-8"><title>clock</title><p id="said">waiting</p><script>
let last = 0; const open = {};
const send = (method, params) => new Promise((done) => {
  const id = ++last; open[id] = done; parent.postMessage({jsonrpc: "2.0", id, method, params}, "*"); });
addEventListener("message", (event) => { const {id, result} = event.data; if (id in open) open[id](result); });
send("ui/initialize", {protocolVersion: "2026-01-26", appInfo: {name: "clock", version: "1"}, appCapabilities: {}})
  .then(() => send("tools/call", {name: "tick", arguments: {}}))
  .then((result) => { document.getElementById("said").textContent = result.content[0].text; });
</script>"""

EXPENSES = """---
name: expense-report
description: File an expense report, from the receipts and the form to the approval of finance.
---

# Expense reports

1. Collect the receipts. 2. Fill in the form as in `references/form.md`. 3. Send it to finance.
"""
TEXTS = {
    "skill://acme/expense-report/SKILL.md": EXPENSES,
    "skill://acme/expense-report/references/form.md": "# The form\n\nDate, amount, purpose.\n",
    "skill://git-workflow/SKILL.md": "---\nname: git-workflow\ndescription: Branch, commit and merge as this team "
    "does.\n---\n\n# Git\n\nRebase, never merge.\n",
}


class Params(BaseModel):
    """Anything: the handlers read what they need."""

    model_config = ConfigDict(extra="allow")


def now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def text(said: str, **fields: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}], **fields}


def question(message: str, key: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {key: {"type": "string"}}, "required": [key]}
    params = {"mode": "form", "message": message, "requestedSchema": schema}
    return {"method": "elicitation/create", "params": params}


class Tasks:
    """The tasks of this server, as their wire form."""

    def __init__(self, state: Path | None) -> None:
        self._state = state
        self.known: dict[str, dict[str, Any]] = json.loads(state.read_text()) if state and state.exists() else {}
        self.given: dict[str, dict[str, Any]] = {}
        self.running: dict[str, asyncio.Task[None]] = {}
        self.updated: dict[str, asyncio.Event] = {}

    def begin(self, work: Callable[[str], Any], ttl_ms: int | None = 600_000) -> dict[str, Any]:
        task = secrets.token_hex(8)
        self.known[task] = {
            "taskId": task,
            "status": "working",
            "createdAt": now(),
            "lastUpdatedAt": now(),
            "ttlMs": ttl_ms,
            "pollIntervalMs": 50,
        }
        self.keep()
        self.updated[task] = asyncio.Event()
        self.running[task] = asyncio.create_task(self._run(task, work))
        return {"resultType": "task", **self.known[task]}

    async def _run(self, task: str, work: Callable[[str], Any]) -> None:
        try:
            self.change(task, status="completed", result=await work(task))
        except MCPError as error:
            said = {"code": error.code, "message": error.message}
            self.change(task, status="failed", statusMessage=error.message, error=said)

    def change(self, task: str, **fields: Any) -> None:
        if self.known[task]["status"] not in ("completed", "failed", "cancelled"):
            asked = {"inputRequests": None} | fields
            now_known = {**self.known[task], **asked, "lastUpdatedAt": now()}
            self.known[task] = {key: value for key, value in now_known.items() if key == "ttlMs" or value is not None}
            self.keep()

    def keep(self) -> None:
        if self._state:
            # In one step, for tests that read it meanwhile.
            written = self._state.with_suffix(".new")
            written.write_text(json.dumps(self.known))
            written.replace(self._state)

    async def ask(self, task: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        left, given = dict(asked), {}
        while left:
            self.change(task, status="input_required", inputRequests=dict(left))
            await self.updated[task].wait()
            self.updated[task].clear()
            for key in [key for key in left if key in self.given.get(task, {})]:
                given[key] = self.given[task][key]
                del left[key]
        self.change(task, status="working")
        return given

    def of(self, params: Any) -> dict[str, Any]:
        task = getattr(params, "taskId", None)
        if task not in self.known:
            raise MCPError(types.INVALID_PARAMS, "Task not found")
        return self.known[task]


class Extended:
    """The handlers."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.tasks = Tasks(Path(options.state) if options.state else None)
        self.calls: list[str] = []

    @property
    def texts(self) -> dict[str, str]:
        return dict(json.loads(Path(self.options.skills).read_text())) if self.options.skills else TEXTS

    def tools(self) -> list[dict[str, Any]]:
        name = {"type": "object", "properties": {"name": {"type": "string"}}}
        seconds = {"type": "object", "properties": {"seconds": {"type": "number"}, "label": {"type": "string"}}}
        shown = {"ui": {"resourceUri": self.options.page, "visibility": ["model", "app"]}}
        return [
            {"name": "greet", "description": "Say hello to a person", "inputSchema": name},
            {"name": "slow_compute", "description": "Compute slowly", "inputSchema": seconds},
            {"name": "endless", "description": "Compute without end", "inputSchema": ANY},
            {"name": "failing_job", "description": "A job that fails", "inputSchema": ANY},
            {"name": "protocol_error_job", "description": "A job that breaks", "inputSchema": ANY},
            {"name": "confirm_delete", "description": "Delete a file after a question", "inputSchema": ANY},
            {"name": "multi_input", "description": "Ask two questions", "inputSchema": ANY},
            {"name": "test_tool_with_task", "description": "Ask, then work", "inputSchema": ANY},
            {"name": "show_clock", "description": "Show the clock", "inputSchema": ANY, "_meta": shown},
            {
                "name": "old_clock",
                "description": "Show the old clock",
                "inputSchema": ANY,
                "_meta": {"ui/resourceUri": self.options.page},
            },
            {
                "name": "tick",
                "description": "Wind the spring of the clock for its page",
                "inputSchema": ANY,
                "_meta": {"ui": {"visibility": ["app"]}},
            },
        ]

    async def call(self, ctx: Any, params: types.CallToolRequestParams) -> Any:
        name, given = params.name, params.arguments or {}
        self.calls.append(name)
        meta = ((ctx.params or {}).get("_meta") or {}).get("io.modelcontextprotocol/clientCapabilities") or {}
        has_tasks = TASKS in (meta.get("extensions") or {})
        if name == "greet":
            return text(f"Hello, {given.get('name')}!", resultType="complete")
        if name in ("show_clock", "old_clock"):
            return text(f"the clock of {self.options.name}", resultType="complete")
        if name == "tick":
            return text(f"ticked at {self.options.name}", resultType="complete")
        answers = (ctx.params or {}).get("inputResponses") or {}
        if name == "test_tool_with_task" and not answers:
            asked = {"user_name": question("Your name?", "name")}
            return {"resultType": "input_required", "inputRequests": asked, "requestState": "one"}
        if not has_tasks:
            if name == "slow_compute":
                await asyncio.sleep(min(float(given.get("seconds", 0)), 2))
                return text("computed", resultType="complete")
            needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
            raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "Missing required client capability", needed)
        return self._begin(name, given, answers)

    def _begin(self, name: str, given: Mapping[str, Any], answers: Mapping[str, Any]) -> dict[str, Any]:
        async def compute(_task: str) -> dict[str, Any]:
            await asyncio.sleep(float(given.get("seconds", 0)))
            return text(f"computed {given.get('label', '')}")

        async def endless(task: str) -> dict[str, Any]:
            for number in range(1_000_000):
                self.tasks.change(task, statusMessage=f"step {number}")
                await asyncio.sleep(0.05)
            return text("never")

        async def failing(_task: str) -> dict[str, Any]:
            await asyncio.sleep(0.2)
            return text("the job failed", isError=True)

        async def breaking(_task: str) -> dict[str, Any]:
            raise MCPError(types.INTERNAL_ERROR, "the job broke")

        async def deleting(task: str) -> dict[str, Any]:
            found = await self.tasks.ask(task, {"sure": question("Delete it?", "confirm")})
            return text(f"deleted: {found['sure'].get('action')}")

        async def asking(task: str) -> dict[str, Any]:
            asked = {key: question(f"{key}?", key) for key in ("first", "second")}
            return text(json.dumps(await self.tasks.ask(task, asked)))

        async def greeting(_task: str) -> dict[str, Any]:
            return text(f"Hello, {(answers['user_name'].get('content') or {}).get('name')}!")

        work = {
            "slow_compute": compute,
            "endless": endless,
            "failing_job": failing,
            "protocol_error_job": breaking,
            "confirm_delete": deleting,
            "multi_input": asking,
            "test_tool_with_task": greeting,
        }
        if name not in work:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool {name}")
        return self.tasks.begin(work[name])

    def _check(self, ctx: Any, params: Any) -> None:
        meta = ((ctx.params or {}).get("_meta") or {}).get("io.modelcontextprotocol/clientCapabilities") or {}
        if TASKS not in (meta.get("extensions") or {}):
            needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
            raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "Missing required client capability", needed)
        if ctx.request is not None and ctx.request.headers.get("mcp-name") != getattr(params, "taskId", None):
            raise MCPError(types.HEADER_MISMATCH, "Mcp-Name is not the taskId")

    async def get(self, ctx: Any, params: Any) -> dict[str, Any]:
        self._check(ctx, params)
        return {"resultType": "complete", **self.tasks.of(params)}

    async def update(self, ctx: Any, params: Any) -> dict[str, Any]:
        self._check(ctx, params)
        task = self.tasks.of(params)["taskId"]
        self.tasks.given.setdefault(task, {}).update(params.inputResponses)
        self.tasks.updated[task].set()
        return {"resultType": "complete"}

    async def cancel(self, ctx: Any, params: Any) -> dict[str, Any]:
        self._check(ctx, params)
        task = self.tasks.of(params)["taskId"]
        self.tasks.change(task, status="cancelled")
        if task in self.tasks.running:
            self.tasks.running[task].cancel()
        return {"resultType": "complete"}

    def skill(self, uri: str) -> dict[str, Any]:
        texts, folder = self.texts, uri.removesuffix("SKILL.md")
        if uri not in texts or not uri.endswith("/SKILL.md"):
            raise MCPError(types.INVALID_PARAMS, f"No skill is served at {uri}")
        written = texts[uri].split("---")[1].strip().splitlines()
        frontmatter = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in written)}
        files = [
            {
                "uri": one,
                "digest": f"sha256:{hashlib.sha256(content.encode()).hexdigest()}",
                "size": len(content.encode()),
            }
            for one, content in texts.items()
            if one.startswith(folder)
        ]
        return {"uri": uri, "frontmatter": frontmatter, "resources": files}

    async def skills(self, _ctx: Any, params: Any) -> dict[str, Any]:
        skills: list[Any] = [self.skill(uri) for uri in self.texts if uri.endswith("/SKILL.md")]
        skills += json.loads(Path(self.options.extra_skills).read_text()) if self.options.extra_skills else []
        at = int(getattr(params, "cursor", None) or 0)
        more = {"nextCursor": str(at + 1)} if at + 1 < len(skills) else {}
        return {"skills": skills[at : at + 1], **more, "ttlMs": 300_000, "cacheScope": "public"}

    async def one_skill(self, _ctx: Any, params: Any) -> dict[str, Any]:
        return {"skill": self.skill(params.uri), "ttlMs": 300_000, "cacheScope": "public"}

    async def directory(self, _ctx: Any, params: Any) -> dict[str, Any]:
        folder = f"{params.uri}/"
        inner = dict.fromkeys(uri.removeprefix(folder).split("/")[0] for uri in self.texts if uri.startswith(folder))
        if not inner:
            raise MCPError(types.INVALID_PARAMS, f"{params.uri} is not a directory resource")
        children = []
        for name in inner:
            kind = "text/markdown" if folder + name in self.texts else "inode/directory"
            children.append({"uri": folder + name, "name": name, "mimeType": kind})
        return {"resources": children}

    async def resources(self, _ctx: Any, _params: Any) -> types.ListResourcesResult:
        found = []
        for uri in self.texts:
            if uri.endswith("/SKILL.md"):
                said = self.skill(uri)["frontmatter"]
                name, description = said["name"], said["description"]
                found.append(types.Resource(uri=uri, name=name, description=description, mime_type="text/markdown"))
        return types.ListResourcesResult(resources=found)

    async def read(self, _ctx: Any, params: types.ReadResourceRequestParams) -> Any:
        uri = str(params.uri)
        if uri in (PAGE, self.options.page):
            csp = {"ui": {"csp": {"connectDomains": ["https://example.com"]}, "prefersBorder": True}}
            page = HTML.replace("clock</title>", f"clock of {self.options.name}</title>")
            shown = {"uri": uri, "mimeType": "text/html;profile=mcp-app", "text": page, "_meta": csp}
            return {"contents": [shown], "ttlMs": 0, "cacheScope": "private", "resultType": "complete"}
        if uri not in self.texts:
            raise MCPError(types.INVALID_PARAMS, f"Resource not found: {uri}")
        content = {"uri": uri, "mimeType": "text/markdown", "text": self.texts[uri]}
        if self.options.blobs:
            del content["text"]
            content["blob"] = base64.b64encode(self.texts[uri].encode()).decode()
        return {"contents": [content], "ttlMs": 0, "cacheScope": "private", "resultType": "complete"}

    def server(self) -> Server[Any]:
        async def tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
            return types.ListToolsResult(tools=[types.Tool.model_validate(tool) for tool in self.tools()])

        server: Server[Any] = Server(
            self.options.name,
            version="1",
            on_list_tools=tools,
            on_call_tool=self.call,
            on_list_resources=self.resources,
            on_read_resource=self.read,
        )
        server.extensions = {TASKS: {}, SKILLS: {"directoryRead": True}}
        methods = {
            "tasks/get": self.get,
            "tasks/update": self.update,
            "tasks/cancel": self.cancel,
            "skills/list": self.skills,
            "skills/get": self.one_skill,
            "resources/directory/read": self.directory,
        }
        for method, handler in methods.items():
            server.add_request_handler(method, Params, handler)
        return server


async def on_stdio(server: Server[Any]) -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--http", type=int, default=0)
    parser.add_argument("--name", default="extended")
    parser.add_argument("--state", default="")
    parser.add_argument("--skills", default="")
    parser.add_argument("--extra-skills", default="")
    parser.add_argument("--page", default=PAGE)
    parser.add_argument("--blobs", action="store_true")
    options = parser.parse_args()
    server = Extended(options).server()
    if options.http:
        uvicorn.run(server.streamable_http_app(), port=options.http, log_level="critical")
    else:
        anyio.run(on_stdio, server)


if __name__ == "__main__":
    main()
