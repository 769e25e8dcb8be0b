"""How commands reach an optimizer: what they ask about, and the socket on which a serving one answers."""

from __future__ import annotations

import os
from typing import Any

from mcp_optimizer import __version__
from mcp_optimizer.app.life import Life
from mcp_optimizer.app.options import selected_profile
from mcp_optimizer.app.parts import Parts
from mcp_optimizer.catalog.forms import Detail
from mcp_optimizer.control.answers import Answers, AnswerSources, Operations
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
            scripts=parts.stored_scripts,
            runner=parts.scripts,
        )
    )


def control_listener(parts: Parts, life: Life, address: str, operations: Operations) -> ControlListener:
    """For a gateway that serves."""
    answers = command_answers(parts, life, address, operations)
    return ControlListener(answers.answer, __version__, lambda: life.is_ready)
