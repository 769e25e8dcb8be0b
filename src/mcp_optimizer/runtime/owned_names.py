"""Names that tell which gateway of an installation has what they name: a waiting call, a question, an event.

Clients carry them from one gateway to another. Those of waiting calls are signed together with the caller, so that
nobody makes one up, and another caller's is no name at all. Knows nothing of what is named.
"""

from __future__ import annotations

import itertools
import re
import secrets

from mcp_optimizer.runtime.signatures import Signatures

_PURPOSE = "waiting call"
_MARK = "g1"
_PARTS = 4
_LONGEST = 1_000
_OWNER = "[0-9a-f]{16}"
_QUESTION = re.compile(rf"({_OWNER})-q[0-9]{{1,18}}")
_EVENT = re.compile(rf"({_OWNER})-[0-9]{{1,20}}")


def new_owner() -> str:
    """An id for one gateway in one life."""
    return secrets.token_hex(8)


def owner_of_question(name: object) -> str:
    """The gateway that asked; empty for any other id."""
    found = _QUESTION.fullmatch(name) if isinstance(name, str) else None
    return found[1] if found is not None else ""


def owner_of_event(name: str) -> str:
    """The gateway that sent it; empty for any other id."""
    found = _EVENT.fullmatch(name)
    return found[1] if found is not None else ""


class OwnedNames:
    """Makes names of what this gateway has, and reads those of all."""

    def __init__(self, owner: str, signatures: Signatures) -> None:
        self.owner = owner
        self._signatures = signatures
        self._questions = itertools.count(1)

    async def waiting_call(self, principal: str) -> str:
        """A name for a call that waits here for its caller's answers."""
        name = f"{_MARK}.{self.owner}.{secrets.token_urlsafe(24)}"
        signature = await self._signatures.sign(_PURPOSE, f"{principal}\0{name}")
        return f"{name}.{signature}"

    async def owner_of_call(self, state: object, principal: str) -> str:
        """The gateway where a call of this caller waits; empty if no gateway named it. More may follow the name."""
        if not isinstance(state, str) or len(state) > _LONGEST or not state.startswith(f"{_MARK}."):
            return ""
        parts = state.split(".", _PARTS)[:_PARTS]
        if len(parts) < _PARTS:
            return ""
        *named, signature = parts
        is_ours = await self._signatures.is_ours(_PURPOSE, f"{principal}\0{'.'.join(named)}", signature)
        return named[1] if is_ours else ""

    def question(self) -> str:
        """An id that no other question of any gateway has."""
        return f"{self.owner}-q{next(self._questions)}"


def is_whole_name(state: str) -> bool:
    """Whether a name of a waiting call is all that there is; a script's state has more in it."""
    return state.count(".") == _PARTS - 1
