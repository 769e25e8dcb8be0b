"""A table of hostile answers, notifications and questions, in and between calls. Every transport can carry them."""

from __future__ import annotations

from tests.hostile.deeds import (
    HTTP,
    SSE,
    STDIO,
    STREAM,
    Input,
    Pause,
    Say,
    after,
    before,
    instead,
    put,
)

LISTS = "tools/list"
CALLS = "tools/call"
_DEEP = "[" * 100_000 + "]" * 100_000
_ELICIT = '{"message":"your password?","requestedSchema":{"type":"object","properties":{}}}'
_CYCLE = '{"type":"object","properties":{"a":{"$ref":"#/properties/b"},"b":{"$ref":"#/properties/a"}}}'


def _notice(method: str, params: str = "{}") -> str:
    return f'{{"jsonrpc":"2.0","method":"{method}","params":{params}}}'


def _request(number: str, method: str, params: str = "{}") -> str:
    return f'{{"jsonrpc":"2.0","id":{number},"method":"{method}","params":{params}}}'


def _answer(number: str, rest: str = '"result":{}') -> str:
    return f'{{"jsonrpc":"2.0","id":{number},{rest}}}'


def _batch_of_pings(count: int) -> str:
    return "[" + ",".join(_request(str(n), "ping") for n in range(count)) + "]"


ANSWERS = (
    Input("a ping is never answered", "ping", lambda _asked: (), (HTTP, SSE), slow=True),
    Input("a result that is a list", CALLS, put("result", "[]")),
    Input("a result that is text", CALLS, put("result", '"done"')),
    Input("a result that is null", CALLS, put("result", "null")),
    Input("an answer with neither result nor error", CALLS, instead('{"jsonrpc":"2.0","id":ID}')),
    Input("content that is an object", CALLS, put("result.content", '{"type":"text"}')),
    Input("content of every type but the right one", CALLS, put("result.content", '[null,1,"a",[],{},{"type":5}]')),
    Input("content of types that do not exist", CALLS, put("result.content", '[{"type":"smell","smell":[1e999]}]')),
    Input("content whose type is a list or an object", CALLS, put("result.content", '[{"type":[]},{"type":{"a":1}}]')),
    Input("text that is a number", CALLS, put("result.content.0.text", "12")),
    Input("structured content that is text", CALLS, put("result.structuredContent", '"text"')),
    Input("isError is an object", CALLS, put("result.isError", '{"a":1}')),
    Input("_meta of a result is a list", CALLS, put("result._meta", "[1]")),
    Input(
        "input requests that are no questions",
        CALLS,
        put("result", '{"resultType":"input_required","inputRequests":[5]}'),
    ),
    Input("an error that is text", CALLS, instead(_answer("ID", '"error":"no"'))),
    Input("an error that is a list", CALLS, instead(_answer("ID", '"error":[1,2]'))),
    Input("an error without code or message", CALLS, instead(_answer("ID", '"error":{}'))),
    Input("an error code that is text", CALLS, instead(_answer("ID", '"error":{"code":"E1","message":"no"}'))),
    Input("an error code that is a fraction", CALLS, instead(_answer("ID", '"error":{"code":1.5,"message":"no"}'))),
    Input(
        "an error code of 400 digits", CALLS, instead(_answer("ID", f'"error":{{"code":{"9" * 400},"message":"no"}}'))
    ),
    Input("an error code without end", CALLS, instead(_answer("ID", '"error":{"code":1e999,"message":"no"}'))),
    Input(
        "an error message that is an object", CALLS, instead(_answer("ID", '"error":{"code":-1,"message":{"a":[]}}'))
    ),
    Input(
        "an error message of megabytes",
        CALLS,
        lambda a: [Say(_answer(str(a.id), f'"error":{{"code":-1,"message":"{"e" * 3_000_000 * a.scale}"}}'))],
    ),
    Input(
        "a call is refused with -32000",
        CALLS,
        instead(_answer("ID", '"error":{"code":-32000,"message":"rate limited"}')),
    ),
    Input(
        "a ping is refused",
        "ping",
        instead(_answer("ID", '"error":{"code":-32601,"message":"no"}')),
        (HTTP, SSE),
        slow=True,
    ),
    Input("an answer to a request that nobody made", CALLS, before(_answer("987654"), times=100)),
    Input("an answer whose id is a list", CALLS, before(_answer("[]"))),
    Input("an answer whose id is an object", CALLS, before(_answer('{"a":1}'))),
    Input("an answer whose id is 1e999", CALLS, before(_answer("1e999"))),
    Input("an answer whose id is null", CALLS, before(_answer("null"))),
    Input("an answer whose id is true", CALLS, before(_answer("true"))),
    Input("an answer whose id is a fraction", CALLS, before(_answer("1.5"))),
    Input("an answer whose id has 5,000 digits", CALLS, before(_answer("7" * 5_000), _answer(f'"{"7" * 5_000}"'))),
    Input("the answer comes a thousand times", CALLS, lambda asked: [Say(asked.answer, 1_000)]),
    Input("the answer never comes", CALLS, lambda _asked: ()),
    Input(
        "keys that stand twice",
        CALLS,
        before('{"jsonrpc":"2.0","jsonrpc":"1.0","id":[],"id":{},"result":{},"result":[],"method":7,"method":null}'),
    ),
    Input("an answer in a batch, among junk", CALLS, lambda asked: [Say(f"[null,[],[[]],1,{{}},{asked.answer}]")]),
    Input("a batch of a hundred thousand", CALLS, before("[" + ",".join(["0"] * 100_000) + "]")),
    Input("a hundred thousand pings in one batch", CALLS, lambda a: [Say(_batch_of_pings(100_000)), Say(a.answer)]),
    Input("JSON a hundred thousand levels deep", CALLS, before(_notice("notifications/message", _DEEP))),
    Input("a result a hundred thousand levels deep", CALLS, put("result.structuredContent", _DEEP)),
    Input("NaN and Infinity", CALLS, put("result.structuredContent", '{"a":NaN,"b":-Infinity,"c":1e999}')),
    Input("half a surrogate pair", CALLS, put("result.content.0.text", '"\\ud800 and \\udfff"')),
    Input("a number of a million digits", CALLS, put("result.structuredContent", '{"a":' + "1" * 1_000_000 + "}")),
)

NOTICES = (
    Input(
        "progress now and then, for ever",
        CALLS,
        lambda a: [
            deed
            for _ in range(100)
            for deed in (Say(_notice("notifications/progress", f'{{"progressToken":{a.id},"progress":1}}')), Pause(0.3))
        ],
        heavy=True,
    ),
    Input(
        "params as a list in every notification",
        CALLS,
        before(
            *(
                _notice(method, "[1]")
                for method in (
                    "notifications/progress",
                    "notifications/cancelled",
                    "notifications/message",
                    "notifications/tools/list_changed",
                    "notifications/resources/updated",
                )
            )
        ),
    ),
    Input(
        "params as text in every notification",
        CALLS,
        before(
            *(
                _notice(method, '"p"')
                for method in (
                    "notifications/progress",
                    "notifications/cancelled",
                    "notifications/message",
                    "notifications/tools/list_changed",
                    "notifications/resources/updated",
                )
            )
        ),
    ),
    Input(
        "progress with tokens of others and of odd types",
        CALLS,
        before(
            *(
                _notice("notifications/progress", f'{{"progressToken":{token},"progress":1}}')
                for token in ("1", "[]", "{}", "1e999", "null", "true", '"a"', "9" * 400)
            )
        ),
    ),
    Input("a method with half a surrogate pair", CALLS, before(_notice("notifications/\\ud800", "{}"))),
    Input(
        "progress that is no number",
        CALLS,
        before(_notice("notifications/progress", '{"progressToken":ID,"progress":"much","total":[]}')),
    ),
    Input(
        "progress for ever",
        CALLS,
        before(_notice("notifications/progress", '{"progressToken":ID,"progress":1}'), times=20_000),
    ),
    Input(
        "cancelled for odd ids",
        CALLS,
        before(
            *(
                _notice("notifications/cancelled", f'{{"requestId":{number}}}')
                for number in ("1", "[]", "{}", "1e999", "null", "true", '"a"')
            )
        ),
    ),
    Input(
        "a flood of log messages",
        CALLS,
        before(_notice("notifications/message", '{"level":"info","data":"x"}'), times=20_000),
    ),
    Input(
        "log messages of odd levels", CALLS, before(_notice("notifications/message", '{"level":[],"data":{"a":NaN}}'))
    ),
    Input("a flood of unknown notifications", STREAM, instead(_notice("notifications/nothing"), times=20_000)),
    Input("a flood of changed lists", STREAM, instead(_notice("notifications/tools/list_changed"), times=5_000)),
    Input(
        "a flood of changed prompts and resources",
        STREAM,
        instead(
            _notice("notifications/prompts/list_changed"), _notice("notifications/resources/list_changed"), times=5_000
        ),
    ),
    Input(
        "a flood of updated resources",
        STREAM,
        instead(_notice("notifications/resources/updated", '{"uri":"hostile://one"}'), times=20_000),
    ),
    Input(
        "updated resources of odd names",
        STREAM,
        instead(
            *(
                _notice("notifications/resources/updated", params)
                for params in ('{"uri":[]}', '{"uri":null}', "{}", "[]", "7")
            )
        ),
    ),
    Input("a notification whose method is a list", CALLS, before('{"jsonrpc":"2.0","method":["a"]}')),
    Input(
        "a notification of the megabytes",
        STREAM,
        lambda a: [Say(_notice("notifications/message", f'{{"level":"info","data":"{"n" * 3_000_000 * a.scale}"}}'))],
    ),
    Input(
        "a list that changes with each listing",
        LISTS,
        after(Say(_notice("notifications/tools/list_changed"))),
        (STDIO,),
    ),
)

REQUESTS = (
    Input(
        "questions whose ids are of odd types",
        CALLS,
        before(
            *(
                _request(number, "ping")
                for number in ("[]", "{}", "1e999", "null", "true", "1.5", f'"{"i" * 100_000}"', "9" * 400)
            )
        ),
    ),
    Input("pings of which one has the id of the other", CALLS, before(_request("1", "ping"), times=1_000)),
    Input("a flood of pings", STREAM, lambda a: [Say(_request(str(n), "ping")) for n in range(5_000 * a.scale)]),
    Input(
        "a flood of questions",
        CALLS,
        lambda a: [
            *(Say(_request(f'"q{n}"', "elicitation/create", _ELICIT)) for n in range(2_000 * a.scale)),
            Say(a.answer),
        ],
    ),
    Input(
        "a flood of questions with no call under way",
        STREAM,
        lambda a: [
            Say(_request(f'"s{n}"', "sampling/createMessage", '{"messages":[],"maxTokens":1}'))
            for n in range(500 * a.scale)
        ],
    ),
    Input(
        "questions with params of odd types",
        CALLS,
        before(
            *(
                _request(f'"{method}{params}"', method, params)
                for method in ("elicitation/create", "sampling/createMessage", "roots/list", "ping", "no/such")
                for params in ("[]", "null", "7", "true")
            )
        ),
    ),
    Input(
        "a question with a schema that refers in a circle",
        CALLS,
        before(_request('"c"', "elicitation/create", f'{{"message":[],"requestedSchema":{_CYCLE}}}')),
    ),
    Input("a question whose method is a megabyte", CALLS, before(_request('"m"', "m" * 1_000_000))),
)
