"""The Python that runs in a worker before each script: it passes calls to the gateway and returns their results.

Arguments and results cross as text and are converted in the worker, because objects would block the event loop. The
names begin with `_mo_`; a script that uses them gains nothing that `call` does not offer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

NOW, LATER = "_mo_now", "_mo_later_"
"""Functions of the gateway: one returns a result, the other an awaitable."""

CALL, PARALLEL, FIND = "call", "parallel", "find"
"""The operations that the gateway's functions accept."""

PRELUDE = """
import asyncio as _mo_asyncio
import json as _mo_json
import asyncio, json, re, math, datetime
ToolError = RuntimeError
class _mo_Server:
    pass
def _mo_packed(value):
    return _mo_json.dumps(value)
def _mo_parsed(text):
    try:
        return _mo_json.loads(text)
    except (ValueError, RecursionError):
        return text
def _mo_unpacked(text):
    kind = text[:1]
    if kind == "t":
        return text[1:]
    value = _mo_parsed(text[1:])
    if kind == "r" and isinstance(value, dict) and list(value) == ["result"]:
        value = value["result"]
        if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
            return _mo_parsed(value)
    return value
def _mo_shown(value, limit):
    if value is None:
        return ""
    if isinstance(value, str):
        return "t" + value[:limit]
    try:
        return "j" + _mo_compact(value)[:limit]
    except (TypeError, ValueError, RecursionError):
        pass
    try:
        return "j" + _mo_compact(_mo_plain(value, _mo_named))[:limit]
    except (TypeError, ValueError, RecursionError):
        return "t" + repr(value)[:limit]
def _mo_compact(value):
    return _mo_json.dumps(value, ensure_ascii=False, separators=(",", ":"))
def _mo_named(value):
    return list(value) if isinstance(value, (set, frozenset)) else str(value)
def _mo_plain(value, default):
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, dict):
        return {key: _mo_plain(value[key], default) for key in value}
    if isinstance(value, (list, tuple)):
        return [_mo_plain(one, default) for one in value]
    return _mo_plain(default(value), default)
def _mo_dumps(value, default=None, **options):
    return _mo_json.dumps(value if default is None else _mo_plain(value, default), **options)
def _mo_sub(pattern, repl, string, count=0, flags=0):
    if type(repl).__name__ != "function":
        return re.sub(pattern, repl, string, count, flags)
    parts, at, done = [], 0, 0
    for found in re.finditer(pattern, string, flags):
        if count and done >= count:
            break
        parts.append(string[at:found.start()])
        parts.append(repl(found))
        at, done = found.end(), done + 1
    return "".join(parts) + string[at:]
def _mo_sorted(values, key=None, reverse=False):
    if key is None:
        return sorted(values, reverse=reverse)
    values = list(values)
    keys = [key(value) for value in values]
    order = sorted(range(len(values)), key=lambda number: keys[number], reverse=reverse)
    return [values[number] for number in order]
def _mo_most(choose, values, key, default):
    values = list(values[0] if len(values) == 1 else values)
    if not values and default:
        return default["default"]
    if key is None:
        return choose(values)
    keys = [key(value) for value in values]
    return values[choose(range(len(values)), key=lambda number: keys[number])]
def _mo_max(*values, key=None, **default):
    return _mo_most(max, values, key, default)
def _mo_min(*values, key=None, **default):
    return _mo_most(min, values, key, default)
def _mo_map(function, *lists):
    return [function(*values) for values in zip(*lists)]
def _mo_filter(function, values):
    return [value for value in values if (value if function is None else function(value))]
async def _mo_awaited(future):
    return _mo_unpacked(await future)
async def _mo_settled(value):
    if type(value).__name__ == "coroutine":
        return await value
    return value
async def _mo_kept(value):
    try:
        return await _mo_settled(value)
    except Exception as error:
        return error
async def _mo_gather(*values, return_exceptions=False):
    waited = _mo_kept if return_exceptions else _mo_settled
    return await _mo_asyncio.gather(*[waited(value) for value in values])
def _mo_tool(name):
    def tool(*args, **kwargs):
        return _mo_unpacked(_mo_now("call", name, _mo_packed([args, kwargs])))
    return tool
def _mo_later(name):
    def tool(*args, **kwargs):
        return _mo_awaited(_mo_later_("call", name, _mo_packed([args, kwargs])))
    return tool
def call(_mo_name, *args, **kwargs):
    return _mo_unpacked(_mo_now("call", _mo_name, _mo_packed([args, kwargs])))
def _mo_call_later(_mo_name, *args, **kwargs):
    return _mo_awaited(_mo_later_("call", _mo_name, _mo_packed([args, kwargs])))
def _mo_listed(items):
    if hasattr(items, "__len__") and len(items) > _mo_most_calls:
        raise ValueError(f"parallel() makes at most {_mo_most_calls} calls, not {len(items)}")
    found = []
    for item in items:
        if len(found) >= _mo_most_calls:
            raise ValueError(f"parallel() makes at most {_mo_most_calls} calls")
        found.append(item)
    return _mo_packed(found)
def parallel(name, items):
    return [_mo_unpacked(text) for text in _mo_json.loads(_mo_now("parallel", name, _mo_listed(items)))]
async def _mo_all(future):
    return [_mo_unpacked(text) for text in _mo_json.loads(await future)]
def _mo_parallel_later(name, items):
    return _mo_all(_mo_later_("parallel", name, _mo_listed(items)))
def find(text):
    return _mo_unpacked(_mo_now("find", text, ""))
def _mo_find_later(text):
    return _mo_awaited(_mo_later_("find", text, ""))
"""


def setup(servers: Mapping[str, Iterable[str]], variables: Mapping[str, Any], most_calls: int, most_shown: int) -> str:
    """The code before a script: the helpers, the servers that the script names with their tools, and its variables."""
    lines = [PRELUDE, f"_mo_most_calls, _mo_limit = {most_calls}, {most_shown}"]
    for server, tools in servers.items():
        lines.append(f"{server} = _mo_Server()")
        lines += [f"{server}.{tool} = _mo_tool({json.dumps(f'{server}.{tool}')})" for tool in tools]
    lines += [
        f"{name} = _mo_json.loads({json.dumps(json.dumps(value, ensure_ascii=False), ensure_ascii=False)})"
        for name, value in variables.items()
    ]
    return "\n".join(lines)
