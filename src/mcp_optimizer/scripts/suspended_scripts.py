"""Keeps scripts that wait for a modern client's answers between two of its requests.

A question during a script becomes an input-required result; the script stays in its worker until the client calls again
with the answers. Meanwhile the client holds a sealed token with the script's name and progress: after a restart the
gateway can say what happened, and it never runs anything that a client sends back.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.result_type import is_input_required
from mcp_optimizer.errors import CallNotWaiting, InvalidRequest
from mcp_optimizer.scripts.inner_calls import InnerCalls
from mcp_optimizer.upstream.parked import ParkedCalls, Request

Key = Callable[[], Awaitable[bytes | None]]
"""Reads the key of the gateway's database; None if there is none."""

_LONGEST_STATE = 500


class ScriptAttempt:
    """One run of a script and its progress so far."""

    def __init__(self) -> None:
        self._calls: InnerCalls | None = None

    def began(self, calls: InnerCalls) -> None:
        """Sets the object through which the script makes its calls."""
        self._calls = calls

    @property
    def counts(self) -> tuple[int, int]:
        """How many calls it made, and how many of them may have changed something."""
        notes = self._calls.notes if self._calls is not None else []
        return len(notes), sum(note.changes for note in notes)


Make = Callable[[Caller, ScriptAttempt], Coroutine[Any, Any, dict[str, Any]]]


async def _no_key() -> bytes | None:
    return None


@dataclass(frozen=True)
class _Left:
    """The token that a client brings back: the waiting script, its gateway's life, and the script's progress."""

    state: str
    life: str
    calls: int
    changes: int


class WaitingScripts:
    """The scripts that are suspended or may become so."""

    def __init__(self, parked: ParkedCalls | None = None, key: Key = _no_key) -> None:
        self._parked = parked or ParkedCalls()
        self._stored_key = key
        self._key: bytes | None = None
        self._life = secrets.token_hex(4)
        self._attempts: WeakValueDictionary[str, ScriptAttempt] = WeakValueDictionary()

    async def begin(self, params: Mapping[str, Any], caller: Caller, make: Make) -> dict[str, Any]:
        """Starts a script; returns its result or its first question."""
        attempt = ScriptAttempt()
        request = Request("", "run_script", params)
        result = await self._parked.begin(request, caller, lambda parked: make(parked, attempt))
        return await self._sealed(result, caller, attempt)

    async def go_on(self, params: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """Passes answers to a waiting script; returns its result or its next question."""
        left = await self._opened(caller)
        caller = caller._replace(passed_on={**caller.passed_on, "requestState": left.state})
        if self._parked.find(caller) is None:
            raise InvalidRequest(_ended(left, is_this_life=left.life == self._life))
        attempt = self._attempts.get(left.state)
        result = await self._parked.go_on(Request("", "run_script", params), caller)
        return await self._sealed(result, caller, attempt)

    async def close(self) -> None:
        """Ends all waiting scripts, because the gateway stops and no answers will come."""
        await self._parked.close()

    async def _sealed(self, result: dict[str, Any], caller: Caller, attempt: ScriptAttempt | None) -> dict[str, Any]:
        if not is_input_required(result):
            return result
        state = result["requestState"]
        calls, changes = attempt.counts if attempt is not None else (0, 0)
        if attempt is not None:
            self._attempts[state] = attempt
        said = f"{state}.{self._life}.{calls}.{changes}"
        return {**result, "requestState": f"{said}.{await self._mac(said, caller)}"}

    async def _opened(self, caller: Caller) -> _Left:
        """Raises CallNotWaiting for any token that this gateway did not write for this caller."""
        given = caller.passed_on.get("requestState")
        said, _, mac = (
            given.rpartition(".") if isinstance(given, str) and len(given) <= _LONGEST_STATE else ("", "", "")
        )
        if not said or not hmac.compare_digest(mac.encode(), (await self._mac(said, caller)).encode()):
            raise CallNotWaiting
        state, life, calls, changes = said.rsplit(".", 3)
        return _Left(state, life, int(calls), int(changes))

    async def _mac(self, said: str, caller: Caller) -> str:
        if self._key is None:
            self._key = await self._stored_key() or secrets.token_bytes(16)
        text = f"{caller.key}\0{said}".encode("utf-8", "surrogatepass")
        return hmac.new(b"scripts" + self._key, text, hashlib.sha256).hexdigest()


def _ended(left: _Left, *, is_this_life: bool) -> str:
    why = "waited too long for an answer" if is_this_life else "was waiting when the gateway was restarted"
    made = "No tool was called." if not left.calls else f"It had made {left.calls} calls."
    changed = (
        f" {left.changes} of them may have changed something: look before you run it again." if left.changes else ""
    )
    return f"The script {why}, and ended. {made}{changed}"
