"""A table of hostile handshakes and lists, with bad JSON where a server describes itself and its tools."""

from __future__ import annotations

import json

from tests.hostile.deeds import (
    HELLO,
    HTTP,
    OVER_HTTP,
    SSE,
    STDIO,
    STDIO_MODERN,
    Input,
    Say,
    instead,
    put,
)

LISTS = "tools/list"
_TOOL = '{"name":"%s","description":"x","inputSchema":{"type":"object"}}'
_SCHEMA = "result.tools.0.inputSchema"
_CYCLE = '{"type":"object","properties":{"a":{"$ref":"#/properties/b"},"b":{"$ref":"#/properties/a"}}}'
_SELF = '{"$ref":"#"}'
_FAR = (
    '{"type":"object","properties":{"a":{"$ref":"http://127.0.0.1:9/schema.json"},"b":{"$ref":"file:///etc/passwd"}}}'
)


def _answer(number: str, rest: str = '"result":{}') -> str:
    return f'{{"jsonrpc":"2.0","id":{number},{rest}}}'


def _tools(*names: str) -> str:
    return "[" + ",".join(_TOOL % name for name in names) + "]"


def _many_values(count: int) -> str:
    return json.dumps({"type": "object", "properties": {"one": {"enum": [f"value {n}" for n in range(count)]}}})


HANDSHAKES = (
    Input("the capability tools is a list", HELLO, put("result.capabilities.tools", "[]")),
    Input("the capability tools is true", HELLO, put("result.capabilities.tools", "true")),
    Input("the capability tools is text", HELLO, put("result.capabilities.tools", '"yes"')),
    Input("the capability tools is a number", HELLO, put("result.capabilities.tools", "7")),
    Input("the capability resources is a list of junk", HELLO, put("result.capabilities.resources", '[[{"a":[1]}]]')),
    Input("capabilities are a list", HELLO, put("result.capabilities", "[1,2]")),
    Input("capabilities are text", HELLO, put("result.capabilities", '"all"')),
    Input("capabilities are null", HELLO, put("result.capabilities", "null")),
    Input("listChanged is an object", HELLO, put("result.capabilities.tools.listChanged", '{"a":[]}')),
    Input("the protocol version is a list", HELLO, put("result.protocolVersion", "[]"), (STDIO, HTTP, SSE)),
    Input("the protocol version is an object", HELLO, put("result.protocolVersion", "{}"), (STDIO, HTTP, SSE)),
    Input("the protocol version is a number", HELLO, put("result.protocolVersion", "1e999"), (STDIO, HTTP, SSE)),
    Input("the supported versions are objects", HELLO, put("result.supportedVersions", "[{}]"), (STDIO_MODERN,)),
    Input("the supported versions are a number", HELLO, put("result.supportedVersions", "5"), (STDIO_MODERN,)),
    Input("_meta is text in a discovery", HELLO, put("result._meta", '"text"'), (STDIO_MODERN, OVER_HTTP[1])),
    Input("_meta is a list in a discovery", HELLO, put("result._meta", "[1]"), (STDIO_MODERN, OVER_HTTP[1])),
    Input("the server's info is a list", HELLO, put("result.serverInfo", "[[]]")),
    Input("the server's name is an object", HELLO, put("result.serverInfo", '{"name":{"a":1},"version":[]}')),
    Input("the server's name has control characters", HELLO, put("result.serverInfo", '{"name":"\\u001b[31m\\u0000"}')),
    Input("instructions are an object", HELLO, put("result.instructions", '{"a":1}')),
    Input("instructions are megabytes", HELLO, put("result.instructions", lambda a: f'"{"i" * 3_000_000 * a.scale}"')),
    Input("a handshake with a result that is a list", HELLO, put("result", "[]")),
    Input("a handshake with a result that is text", HELLO, put("result", '"hello"')),
    Input("a handshake with no result", HELLO, put("result", "null")),
    Input("a handshake with both a result and an error", HELLO, put("error", '{"code":1,"message":"both"}')),
    Input(
        "supported versions in an error are objects",
        HELLO,
        instead(_answer("ID", '"error":{"code":-32022,"message":"no","data":{"supported":[{},[],null]}}')),
    ),
    Input("the handshake is answered twice", HELLO, lambda asked: [Say(asked.answer, 2)]),
)

LISTINGS = (
    Input(
        "ten thousand prompts",
        "prompts/list",
        put(
            "result.prompts",
            lambda a: "[" + ",".join(f'{{"name":"p{n}","description":"d"}}' for n in range(10_000 * a.scale)) + "]",
        ),
    ),
    Input("tools are an object", LISTS, put("result.tools", '{"a":1}')),
    Input("tools are null", LISTS, put("result.tools", "null")),
    Input("tools are text", LISTS, put("result.tools", '"tools"')),
    Input("tools of every type but the right one", LISTS, put("result.tools", '[null,1,"a",[],{},true,1e999]')),
    Input(
        "ten thousand tools",
        LISTS,
        put("result.tools", lambda a: _tools(*(f"t{n}" for n in range(10_000 * a.scale)))),
        (STDIO, HTTP),
        heavy=True,
    ),
    Input("tool names that are empty or blank", LISTS, put("result.tools", _tools("", " ", "\\n", "\\u0000"))),
    Input("a tool name of 300 kB", LISTS, put("result.tools", _tools("x" * 300_000))),
    Input(
        "tool names with control characters",
        LISTS,
        put("result.tools", _tools("a\\u001b[2J", "b\\r\\nHTTP", "c\\u202e", "\\ud800", "a/../b", "<script>")),
    ),
    Input("one tool name a thousand times", LISTS, put("result.tools", _tools(*["same"] * 1_000))),
    Input(
        "tool names that are no text", LISTS, put("result.tools", '[{"name":1},{"name":null},{"name":[]},{"name":{}}]')
    ),
    Input(
        "tool names of the gateway's own tools",
        LISTS,
        put("result.tools", _tools("find_tool", "call_tool", "list_tools", "read_result")),
    ),
    Input(
        "tool names of the witness",
        LISTS,
        put(
            "result.tools",
            _tools("witness__echo", "witness.echo", "witness/echo", "witness:echo", "mcp__witness__echo"),
        ),
    ),
    Input("an input schema that is a list", LISTS, put(_SCHEMA, "[]")),
    Input("an input schema that is text", LISTS, put(_SCHEMA, '"object"')),
    Input(
        "an input schema of wrong types throughout",
        LISTS,
        put(_SCHEMA, '{"type":7,"properties":[1],"required":"all","enum":{},"$defs":[],"anyOf":{},"items":"x"}'),
    ),
    Input(
        "properties that are no schemas",
        LISTS,
        put(_SCHEMA, '{"type":"object","properties":{"a":[],"b":null,"c":1,"d":"x","":true},"required":[1,{},null]}'),
    ),
    Input("an input schema that refers to itself", LISTS, put(_SCHEMA, _SELF)),
    Input("an input schema that refers in a circle", LISTS, put(_SCHEMA, _CYCLE)),
    Input("an input schema that refers to far places", LISTS, put(_SCHEMA, _FAR)),
    Input("an enum of many values", LISTS, put(_SCHEMA, lambda a: _many_values(20_000 * a.scale)), heavy=True),
    Input(
        "an input schema a thousand levels deep",
        LISTS,
        put(_SCHEMA, '{"properties":{"a":' * 1_000 + "{}" + "}}" * 1_000),
    ),
    Input(
        "a pattern that backtracks for ever",
        LISTS,
        put(_SCHEMA, '{"type":"object","properties":{"value":{"type":"string","pattern":"^(a+)+$"}}}'),
    ),
    Input(
        "a description of megabytes",
        LISTS,
        put("result.tools.0.description", lambda a: f'"{"word " * 600_000 * a.scale}"'),
    ),
    Input("a description that is a list", LISTS, put("result.tools.0.description", '["a"]')),
    Input("annotations that are text", LISTS, put("result.tools.0.annotations", '"readOnly"')),
    Input("pages that never end", LISTS, put("result.nextCursor", lambda a: f'"{a.id}"'), heavy=True),
    Input("a page that is its own next", LISTS, put("result.nextCursor", '"again"')),
    Input("a cursor that is an object", LISTS, put("result.nextCursor", '{"a":1}')),
    Input("a cursor that is a number", LISTS, put("result.nextCursor", "1e999")),
    Input("a cursor of a megabyte", LISTS, put("result.nextCursor", f'"{"c" * 1_000_000}"')),
    Input("a list that is refused", LISTS, instead(_answer("ID", '"error":{"code":-32603,"message":"not now"}'))),
    Input("a list with a result that is text", LISTS, put("result", '"tools"')),
    Input("prompts are text", "prompts/list", put("result.prompts", '"all"')),
    Input("prompts of every type but the right one", "prompts/list", put("result.prompts", '[null,1,{},{"name":[]}]')),
    Input(
        "resources of every type but the right one",
        "resources/list",
        put("result.resources", '[null,1,{},{"uri":[]},{"uri":"http://[::1","name":"a"}]'),
    ),
    Input(
        "templates that cannot be parsed",
        "resources/templates/list",
        put(
            "result.resourceTemplates",
            '[{"uriTemplate":"{{{","name":"a"},{"uriTemplate":5},{"uriTemplate":"{+any}","name":"b"}]',
        ),
    ),
    Input("a list of prompts that never comes", "prompts/list", lambda _asked: ()),
)
