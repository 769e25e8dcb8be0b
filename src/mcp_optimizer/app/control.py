"""How commands reach an optimizer: what they ask about, and the socket on which a serving one answers."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

from mcp_optimizer import __version__
from mcp_optimizer.app.life import Life
from mcp_optimizer.app.options import selected_profile
from mcp_optimizer.app.parts import Parts
from mcp_optimizer.catalog.forms import Detail
from mcp_optimizer.control.answers import Answers, AnswerSources, Invite, Operations
from mcp_optimizer.control.listener import ControlListener
from mcp_optimizer.runtime.worker_place import worker_name


def command_answers(parts: Parts, life: Life, address: str = "", operations: Operations | None = None) -> Answers:
    """`address`: where clients reach it, if it serves over HTTP."""
    settings = parts.settings
    about: dict[str, Any] = {
        "version": __version__,
        "server_file": None if settings.demo else os.path.realpath(settings.server_file),
        "address": address or "stdio",
    }
    if worker := worker_name(os.environ):
        about["worker"] = worker
    return Answers(
        AnswerSources(
            gateway=parts.gateway,
            forms=parts.forms,
            lists=parts.lists,
            states=parts.pool.states,
            settled=life.wait_for_servers,
            detail=Detail(settings.detail),
            profile=selected_profile(settings),
            about=about,
            operations=operations,
            entrance=_entrance(parts, address) if address and settings.dashboard else None,
            scripts=parts.stored_scripts,
            runner=parts.scripts,
        )
    )


def _entrance(parts: Parts, address: str) -> Invite:
    """Asked over the private socket, so whoever asks is the user who runs the gateway."""
    # Loaded only here: commands without a dashboard do not need its pages.
    from mcp_optimizer.app.dashboard import own_host
    from mcp_optimizer.dashboard.reception import ENTRANCE
    from mcp_optimizer.dashboard.sign_ins import SignIns

    sign_ins = SignIns(parts.storage.sign_ins, breaker=parts.storage.breaker)
    outside = parts.settings.public_url or address.removesuffix("/mcp")
    reached = urlsplit(outside)
    own = own_host(parts, reached.hostname or "")

    async def entrance(*, by_address: bool) -> str:
        origin = outside if own is None or by_address else await own.origin(reached.port)
        return f"{origin}{ENTRANCE}?ticket={await sign_ins.ticket()}"

    return entrance


def control_listener(parts: Parts, life: Life, address: str, operations: Operations) -> ControlListener:
    """For a gateway that serves."""
    answers = command_answers(parts, life, address, operations)
    return ControlListener(answers.answer, __version__, lambda: life.is_ready)
