"""A server with every feature that the official conformance suite and our own tests require."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import hmac
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server.caching import CacheHint
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import RootModel

Context = ServerRequestContext[Any, Any]
Params = types.CallToolRequestParams
Answer = dict[str, Any]
Tool = Callable[[Context, Params], Awaitable[Answer]]

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAAAAA=="

_KEY = b"a key that only this process has to know"
_NOTHING = {"type": "object", "properties": {}}

tools: dict[str, tuple[dict[str, Any], Tool]] = {}
bus = InMemorySubscriptionBus()
cancelled: list[str] = []
answers: list[str] = []
calls = 0


class Raw(RootModel[dict[str, Any]]):
    """An answer from the client, unchanged."""


def tool(description: str, schema: Mapping[str, Any] = _NOTHING, **fields: Any) -> Callable[[Tool], Tool]:
    def register(function: Tool) -> Tool:
        name = function.__name__
        tools[name] = ({"name": name, "description": description, "inputSchema": dict(schema), **fields}, function)
        return function

    return register


def takes(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def text(words: str, **fields: Any) -> Answer:
    return {"content": [{"type": "text", "text": words}], **fields}


def capabilities(context: Context) -> dict[str, Any]:
    declared = context.session.client_capabilities
    return declared.model_dump(by_alias=True, exclude_none=True) if declared is not None else {}


async def ask(context: Context, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Send a question to the client in the middle of a call, as legacy servers do."""
    request: Any = types.Request[dict[str, Any], str](method=method, params=params)
    related = ServerMessageMetadata(related_request_id=context.request_id)
    return (await context.session.send_request(request, Raw, metadata=related)).root


async def log(context: Context, words: str) -> None:
    if context.protocol_version in MODERN_PROTOCOL_VERSIONS and not (context.meta or {}).get(types.LOG_LEVEL_META_KEY):
        return
    params = {"level": "info", "logger": "conformant", "data": words}
    notice: Any = types.Notification[dict[str, Any], str](method="notifications/message", params=params)
    await context.session.send_notification(notice, related_request_id=context.request_id)


# What a call returns.


@tool(
    "Returns text",
    title="Simple text",
    annotations={"readOnlyHint": True},
    icons=[{"src": "https://example.com/a.png"}],
)
async def test_simple_text(_context: Context, _params: Params) -> Answer:
    return text("This is a simple text response for testing.")


@tool("Returns an image")
async def test_image_content(_context: Context, _params: Params) -> Answer:
    return {"content": [{"type": "image", "data": PNG, "mimeType": "image/png"}]}


@tool("Returns sound")
async def test_audio_content(_context: Context, _params: Params) -> Answer:
    return {"content": [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]}


def embedded(uri: str, mime_type: str, words: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, "text": words}}


@tool("Returns an embedded resource")
async def test_embedded_resource(_context: Context, _params: Params) -> Answer:
    return {"content": [embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")]}


@tool("Returns text, an image and a resource")
async def test_multiple_content_types(_context: Context, _params: Params) -> Answer:
    resource = embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}')
    image = {"type": "image", "data": PNG, "mimeType": "image/png"}
    return {"content": [{"type": "text", "text": "Multiple content types test:"}, image, resource]}


@tool("Always fails")
async def test_error_handling(_context: Context, _params: Params) -> Answer:
    return text("This tool intentionally returns an error for testing", isError=True)


@tool(
    "Returns structured content with fields that no type knows",
    outputSchema={"type": "object", "properties": {"calls": {"type": "integer"}}},
)
async def structured(_context: Context, _params: Params) -> Answer:
    global calls
    calls += 1
    return text("see structuredContent", structuredContent={"calls": calls, "unknown": {"kept": None}})


@tool("Says what came with the request", takes(text={"type": "string"}))
async def echo(context: Context, params: Params) -> Answer:
    meta = {key: value for key, value in (context.meta or {}).items() if key != "progress_token"}
    return text(str((params.arguments or {}).get("text")), structuredContent={"meta": meta}, _meta={"echo/kept": True})


# What happens during a call.


@tool("Logs three lines")
async def test_tool_with_logging(context: Context, _params: Params) -> Answer:
    for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await log(context, words)
        await asyncio.sleep(0.05)
    return text("Logged three lines.")


@tool("Logs, if the request asks for it")
async def test_logging_tool(context: Context, params: Params) -> Answer:
    return await test_tool_with_logging(context, params)


@tool("Tells how far it is")
async def test_tool_with_progress(context: Context, _params: Params) -> Answer:
    for done in (0, 50, 100):
        await context.session.report_progress(done, 100, f"Completed step {done} of 100")
        await asyncio.sleep(0.05)
    return text("Told three times how far it was.")


@tool("Takes some seconds, unless it is cancelled", takes(name={"type": "string"}))
async def slow(context: Context, params: Params) -> Answer:
    name = str((params.arguments or {})["name"])
    try:
        await context.session.report_progress(1, 2, "begun")
        await asyncio.sleep(20)
    except asyncio.CancelledError:
        cancelled.append(name)
        raise
    return text("done")


@tool("Names the calls that were cancelled")
async def was_cancelled(_context: Context, _params: Params) -> Answer:
    return text(json.dumps(cancelled))


@tool("Ends the stream of the call, and answers on the one that the client opens then")
async def test_reconnection(context: Context, _params: Params) -> Answer:
    # The client must have seen the start of the stream before it can resume it by id.
    await asyncio.sleep(0.1)
    if context.close_sse_stream is not None:
        await context.close_sse_stream()
    await asyncio.sleep(0.3)
    return text("Answered after the stream was ended.")


# Questions to the client, legacy.


@tool("Asks the client's model", takes(prompt={"type": "string"}))
async def test_sampling(context: Context, params: Params) -> Answer:
    if "sampling" not in capabilities(context):
        return text("This client does not support sampling.", isError=True)
    message = {"role": "user", "content": {"type": "text", "text": (params.arguments or {})["prompt"]}}
    answer = await ask(context, "sampling/createMessage", {"messages": [message], "maxTokens": 100})
    return text(f"LLM response: {answer['content']['text']}")


async def elicit(context: Context, message: str, schema: dict[str, Any], words: str) -> Answer:
    if "elicitation" not in capabilities(context):
        return text("This client does not support elicitation.", isError=True)
    answer = await ask(context, "elicitation/create", {"message": message, "requestedSchema": schema})
    return text(f"{words}: action={answer['action']}, content={json.dumps(answer.get('content'))}")


@tool("Asks the user", takes(message={"type": "string"}))
async def test_elicitation(context: Context, params: Params) -> Answer:
    schema = takes(
        username={"type": "string", "description": "User's response"},
        email={"type": "string", "description": "User's email address"},
    )
    return await elicit(context, (params.arguments or {})["message"], schema, "User response")


@tool("Asks the user, with defaults")
async def test_elicitation_sep1034_defaults(context: Context, _params: Params) -> Answer:
    properties = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    schema = {"type": "object", "properties": properties, "required": []}
    return await elicit(context, "Check these values", schema, "Elicitation completed")


@tool("Asks the user to choose")
async def test_elicitation_sep1330_enums(context: Context, _params: Params) -> Answer:
    options = ["option1", "option2", "option3"]
    titled = [
        {"const": f"value{n}", "title": f"{word} Option"} for n, word in enumerate(("First", "Second", "Third"), 1)
    ]
    names = ["Option One", "Option Two", "Option Three"]
    properties = {
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": names},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    schema = {"type": "object", "properties": properties, "required": []}
    return await elicit(context, "Choose", schema, "Elicitation completed")


@tool("Sends the user to a page")
async def ask_url(context: Context, _params: Params) -> Answer:
    if "url" not in capabilities(context).get("elicitation", {}):
        return text("This client does not support elicitation by URL.", isError=True)
    params = {"mode": "url", "message": "Log in", "url": "https://example.com/login", "elicitationId": "e-1"}
    return text(f"Visited: {(await ask(context, 'elicitation/create', params))['action']}")


def can_ask_user(context: Context) -> bool:
    return context.protocol_version not in MODERN_PROTOCOL_VERSIONS and "elicitation" in capabilities(context)


@tool("Asks the user two things, and tells how far it is")
async def ask_twice(context: Context, _params: Params) -> Answer:
    if not can_ask_user(context):
        return text("This client cannot be asked.", isError=True)
    words = []
    for number, question in enumerate(("Who are you?", "Are you sure?"), 1):
        await context.session.report_progress(number, 2, question)
        schema = takes(answer={"type": "string"})
        answer = await ask(context, "elicitation/create", {"message": question, "requestedSchema": schema})
        words.append(f"{answer['action']} {(answer.get('content') or {}).get('answer')}")
    return text("; ".join(words), structuredContent={"answers": words})


@tool("Asks the user, and says in its question which process waits for the answer", annotations={"readOnlyHint": True})
async def ask_with_pid(context: Context, _params: Params) -> Answer:
    if not can_ask_user(context):
        return text("This client cannot be asked.", isError=True)
    try:
        params = {"message": str(os.getpid()), "requestedSchema": takes(answer={"type": "string"})}
        answer = await ask(context, "elicitation/create", params)
        answers.append(answer["action"])
        await asyncio.sleep(0.1)
    except asyncio.CancelledError:
        cancelled.append("ask_with_pid")
        raise
    return text(f"Answered: {answer['action']}")


@tool("Names the answers that ask_with_pid got")
async def was_answered(_context: Context, _params: Params) -> Answer:
    return text(json.dumps(answers))


@tool("Asks for the client's roots")
async def list_roots(context: Context, _params: Params) -> Answer:
    if "roots" not in capabilities(context):
        return text("This client does not support roots.", isError=True)
    return text(json.dumps((await ask(context, "roots/list", {}))["roots"]))


# Questions to the client, modern: the result asks for what is missing.


def elicitation(message: str, **properties: Any) -> dict[str, Any]:
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": takes(**properties)}}


def sampling(prompt: str, most: int) -> dict[str, Any]:
    message = {"role": "user", "content": {"type": "text", "text": prompt}}
    return {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": most}}


ROOTS = {"method": "roots/list", "params": {}}
A_NAME = elicitation("What is your name?", name={"type": "string"})


def needed(requests: dict[str, Any], state: str | None = None) -> Answer:
    return {"resultType": "input_required", "inputRequests": requests} | ({"requestState": state} if state else {})


def responses(params: Any) -> dict[str, Any]:
    given = params.input_responses or {}
    return {key: value.model_dump() if hasattr(value, "model_dump") else value for key, value in given.items()}


def sealed(words: str) -> str:
    return f"{words}.{hmac.new(_KEY, words.encode(), hashlib.sha256).hexdigest()}"


def unsealed(params: Any) -> str:
    state = params.request_state or ""
    words = state.rpartition(".")[0]
    if not hmac.compare_digest(state, sealed(words)):
        raise MCPError(types.INVALID_PARAMS, "requestState was tampered with")
    return words


@tool("Needs a name")
async def test_input_required_result_elicitation(_context: Context, params: Params) -> Answer:
    given = responses(params).get("user_name")
    if given is None:
        return needed({"user_name": A_NAME})
    return text(f"Hello, {(given.get('content') or {}).get('name')}!")


@tool("Needs the client's model")
async def test_input_required_result_sampling(_context: Context, params: Params) -> Answer:
    given = responses(params).get("capital_question")
    if given is None:
        return needed({"capital_question": sampling("What is the capital of France?", 100)})
    return text(f"The model says: {given['content']['text']}")


@tool("Needs the client's roots")
async def test_input_required_result_list_roots(_context: Context, params: Params) -> Answer:
    given = responses(params).get("client_roots")
    if given is None:
        return needed({"client_roots": ROOTS})
    return text(f"Roots: {[str(root['uri']) for root in given['roots']]}")


@tool("Needs a confirmation, and its state back")
async def test_input_required_result_request_state(_context: Context, params: Params) -> Answer:
    if "confirm" not in responses(params):
        return needed({"confirm": elicitation("Please confirm", ok={"type": "boolean"})}, sealed("waiting"))
    return text("state-ok" if unsealed(params) == "waiting" else "another state")


@tool("Needs three things at once")
async def test_input_required_result_multiple_inputs(_context: Context, params: Params) -> Answer:
    requests = {"user_name": A_NAME, "greeting": sampling("Generate a greeting", 50), "client_roots": ROOTS}
    if not requests.keys() <= responses(params).keys():
        return needed(requests, sealed("three"))
    return text(f"All three, after {unsealed(params)}.")


@tool("Needs two things one after the other")
async def test_input_required_result_multi_round(_context: Context, params: Params) -> Answer:
    given = responses(params)
    if "step2" in given:
        return text(f"Both, after {unsealed(params)}.")
    if "step1" in given:
        unsealed(params)
        request = elicitation("Step 2: What is your favorite color?", color={"type": "string"})
        return needed({"step2": request}, sealed("round 2"))
    return needed({"step1": elicitation("Step 1: What is your name?", name={"type": "string"})}, sealed("round 1"))


@tool("Notices when its state was changed")
async def test_input_required_result_tampered_state(_context: Context, params: Params) -> Answer:
    if not responses(params):
        return needed({"confirm": elicitation("Please confirm", ok={"type": "boolean"})}, sealed("untouched"))
    return text(f"State: {unsealed(params)}")


@tool("Needs only what the client can give")
async def test_input_required_result_capabilities(context: Context, params: Params) -> Answer:
    can = {"elicitation": A_NAME, "sampling": sampling("Generate a greeting", 50), "roots": ROOTS}
    requests = {name: request for name, request in can.items() if name in capabilities(context)}
    return text("Thank you.") if responses(params) or not requests else needed(requests)


@tool("Needs a client that can be asked", takes())
async def test_missing_capability(context: Context, _params: Params) -> Answer:
    if "sampling" not in capabilities(context):
        raise MCPError(
            types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            "This tool needs sampling",
            {"requiredCapabilities": {"sampling": {}}},
        )
    return text("This client can be asked.")


@tool("Tells how far it is, then needs a name")
async def test_streaming_elicitation(context: Context, params: Params) -> Answer:
    await context.session.report_progress(1, 2)
    if "elicitation" in capabilities(context) and "user_name" not in responses(params):
        return needed({"user_name": A_NAME})
    return text("Nothing more is needed.")


# Changes.


async def changed(context: Context, kind: str, event: Any) -> Answer:
    await bus.publish(event)
    if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        method = f"notifications/{kind}/list_changed"
        notice: Any = types.Notification[dict[str, Any] | None, str](method=method, params=None)
        await context.session.send_notification(notice)
    return text(f"{kind} changed")


@tool("Says that the tools changed")
async def test_trigger_tool_change(context: Context, _params: Params) -> Answer:
    return await changed(context, "tools", ToolsListChanged())


@tool("Says that the prompts changed")
async def test_trigger_prompt_change(context: Context, _params: Params) -> Answer:
    return await changed(context, "prompts", PromptsListChanged())


@tool("Says that the resources changed")
async def trigger_resource_change(context: Context, _params: Params) -> Answer:
    return await changed(context, "resources", ResourcesListChanged())


@tool("Says that the watched resource changed")
async def update_watched(context: Context, _params: Params) -> Answer:
    await bus.publish(ResourceUpdated("test://watched-resource"))
    for session in list(subscribers.values()):
        await session.send_resource_updated("test://watched-resource")
    return text("updated")


# Schemas.

SCHEMA_2020_12 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


@tool("Tool with JSON Schema 2020-12 features", SCHEMA_2020_12)
async def json_schema_2020_12_tool(_context: Context, params: Params) -> Answer:
    return text(json.dumps(params.arguments))


@tool("Has a parameter that also travels as a header", takes(region={"type": "string", "x-mcp-header": "Region"}))
async def test_header_param(_context: Context, params: Params) -> Answer:
    return text(str((params.arguments or {})["region"]))


# Resources, prompts, completion.

RESOURCES = [
    {"uri": "test://static-text", "name": "static-text", "description": "Text", "mimeType": "text/plain"},
    {"uri": "test://static-binary", "name": "static-binary", "description": "A picture", "mimeType": "image/png"},
    {"uri": "test://watched-resource", "name": "watched", "description": "Can be watched", "mimeType": "text/plain"},
]
TEMPLATE = {
    "uriTemplate": "test://template/{id}/data",
    "name": "template",
    "description": "Data by id",
    "mimeType": "application/json",
}
PROMPTS = [
    {"name": "test_simple_prompt", "description": "A simple prompt"},
    {
        "name": "test_prompt_with_arguments",
        "description": "With arguments",
        "arguments": [
            {"name": "arg1", "description": "First test argument", "required": True},
            {"name": "arg2", "description": "Second test argument", "required": True},
        ],
    },
    {
        "name": "test_prompt_with_embedded_resource",
        "description": "With a resource",
        "arguments": [{"name": "resourceUri", "description": "URI of the resource to embed", "required": True}],
    },
    {"name": "test_prompt_with_image", "description": "With an image"},
    {"name": "test_input_required_result_prompt", "description": "Needs to know more"},
]
CACHEABLE: tuple[Any, ...] = (
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
)
subscribers: dict[int, Any] = {}


async def on_list_tools(_context: Context, _params: Any) -> Any:
    return {"tools": [definition for definition, _ in tools.values()]}


async def on_call_tool(context: Context, params: Params) -> Any:
    if params.name not in tools:
        raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")
    return await tools[params.name][1](context, params)


async def on_list_resources(_context: Context, params: Any) -> Any:
    # Two pages, so that clients have to follow the cursor.
    if params is None or params.cursor is None:
        return {"resources": RESOURCES[:2], "nextCursor": "more"}
    return {"resources": RESOURCES[2:]}


async def on_list_templates(_context: Context, _params: Any) -> Any:
    return {"resourceTemplates": [TEMPLATE]}


async def on_read_resource(context: Context, params: types.ReadResourceRequestParams) -> Any:
    uri = str(params.uri)
    if uri == "test://static-binary":
        return {"contents": [{"uri": uri, "mimeType": "image/png", "blob": PNG}]}
    if uri == "test://static-text":
        words = "This is the content of the static text resource."
    elif uri == "test://watched-resource":
        words = "Watched"
    elif uri.startswith("test://template/") and uri.endswith("/data"):
        number = uri.removeprefix("test://template/").removesuffix("/data")
        if number == "asked":
            question = {"message": "Which?", "requestedSchema": takes(number={"type": "string"})}
            number = (await ask(context, "elicitation/create", question))["content"]["number"]
        return {"contents": [{"uri": uri, "mimeType": "application/json", "text": json.dumps({"id": number})}]}
    else:
        raise MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": uri})
    return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": words}]}


async def on_subscribe(context: Context, _params: Any) -> Any:
    subscribers[id(context.session.client_params)] = context.session
    return {}


async def on_unsubscribe(context: Context, _params: Any) -> Any:
    subscribers.pop(id(context.session.client_params), None)
    return {}


def said(content: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": content}


async def on_get_prompt(context: Context, params: types.GetPromptRequestParams) -> Any:
    given = params.arguments or {}
    if params.name == "test_simple_prompt":
        return {"messages": [said({"type": "text", "text": "This is a simple prompt for testing."})]}
    if params.name == "test_prompt_with_arguments":
        words = f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'"
        return {"messages": [said({"type": "text", "text": words})]}
    if params.name == "test_prompt_with_embedded_resource":
        resource = embedded(given["resourceUri"], "text/plain", "Embedded resource content for testing.")
        last = {"type": "text", "text": "Please process the embedded resource above."}
        return {"messages": [said(resource), said(last)]}
    if params.name == "test_prompt_with_image":
        image = {"type": "image", "data": PNG, "mimeType": "image/png"}
        return {"messages": [said(image), said({"type": "text", "text": "Please analyze the image above."})]}
    if params.name == "test_input_required_result_prompt":
        answer = responses(params).get("user_context")
        request = elicitation("What context should the prompt use?", context={"type": "string"})
        if can_ask_user(context):
            answer = await ask(context, request["method"], request["params"])
        if answer is None:
            return needed({"user_context": request})
        return {"messages": [said({"type": "text", "text": f"In the context of {answer['content']['context']}"})]}
    raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {params.name}")


async def on_list_prompts(_context: Context, _params: Any) -> Any:
    return {"prompts": PROMPTS}


async def on_completion(_context: Context, params: types.CompleteRequestParams) -> Any:
    values = [word for word in ("paris", "park", "party") if word.startswith(params.argument.value)]
    return {"completion": {"values": values, "total": len(values), "hasMore": False}}


async def on_set_level(_context: Context, _params: types.SetLevelRequestParams) -> Any:
    return {}


async def only_the_newer_era(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    if ctx.method == "initialize":
        supported = {"supported": list(MODERN_PROTOCOL_VERSIONS), "requested": "2025-11-25"}
        raise MCPError(types.UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version", supported)
    return await call_next(ctx)


async def only_the_older_era(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    if ctx.method == "server/discover":
        raise MCPError(types.METHOD_NOT_FOUND, "Method not found")
    return await call_next(ctx)


def completed(handler: Callable[[Context, Any], Awaitable[Any]]) -> Callable[[Context, Any], Awaitable[Any]]:
    """Mark results as complete if the client's era requires it."""

    async def handle(context: Context, params: Any) -> Any:
        result = await handler(context, params)
        return {"resultType": "complete", **result} if context.protocol_version in MODERN_PROTOCOL_VERSIONS else result

    return handle


class Events(EventStore):
    """Keeps all events for clients that reconnect. Good enough for short runs with one client at a time."""

    def __init__(self) -> None:
        self._events: list[tuple[str, types.JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        self._events.append((stream_id, message))
        return str(len(self._events) - 1)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        last = int(last_event_id)
        stream, _ = self._events[last]
        for number, (other, message) in enumerate(self._events):
            if number > last and other == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


class _Conformant(Server[Any]):
    """A server that notifies legacy clients of changes too."""

    def create_initialization_options(self, *_args: Any, **_fields: Any) -> Any:
        every = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
        return super().create_initialization_options(every)


def build(era: str | None) -> Server[Any]:
    server = _Conformant(
        "conformant",
        version="1.0.0",
        title="Conformant",
        instructions="Ask it anything.",
        on_list_tools=completed(on_list_tools),
        on_call_tool=completed(on_call_tool),
        on_list_resources=completed(on_list_resources),
        on_list_resource_templates=completed(on_list_templates),
        on_read_resource=completed(on_read_resource),
        on_subscribe_resource=on_subscribe,
        on_unsubscribe_resource=on_unsubscribe,
        on_list_prompts=completed(on_list_prompts),
        on_get_prompt=completed(on_get_prompt),
        on_completion=completed(on_completion),
        on_subscriptions_listen=ListenHandler(bus),
        cache_hints=dict.fromkeys(CACHEABLE, CacheHint(ttl_ms=60_000, scope="public")),
    )
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, on_set_level)
    if era is not None:
        server.middleware.append(only_the_older_era if era == "legacy" else only_the_newer_era)
    return server


async def serve_stdio(server: Server[Any], era: str | None) -> None:
    async with stdio_server() as (read_stream, write_stream):
        if era == "legacy":
            await serve_loop(server, read_stream, write_stream, lifespan_state={})
        else:
            await server.run(read_stream, write_stream, server.create_initialization_options())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--http", type=int)
    parser.add_argument("--era", choices=["legacy", "modern"])
    options = parser.parse_args()
    server = build(options.era)
    if options.http is None:
        asyncio.run(serve_stdio(server, options.era))
    else:
        app = server.streamable_http_app(event_store=Events(), retry_interval=200)
        # uvicorn's other parser keeps trailing spaces of headers, which a server must ignore.
        uvicorn.run(app, port=options.http, log_level="critical", http="h11")


if __name__ == "__main__":
    main()
