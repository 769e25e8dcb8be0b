"""The protocol's extensions that the gateway knows, and the types of results that stand for later ones: input required,
a task. Values and pure functions; knows no server and no client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# The type of a modern result: complete, input required, or a task.

INPUT_REQUIRED = "input_required"

TASK = "task"

ANSWERS = ("inputResponses", "requestState")
"""The keys by which the client's next request provides the input."""


def is_interim(result: Mapping[str, Any]) -> bool:
    """Whether a result stands for one that comes later: the server needs input, or works on a task."""
    return result.get("resultType") in (INPUT_REQUIRED, TASK)


def is_input_required(result: Mapping[str, Any]) -> bool:
    """Whether the server needs more input before there is a result."""
    return result.get("resultType") == INPUT_REQUIRED


def is_task(result: Mapping[str, Any]) -> bool:
    """Whether a server answered a call with a task, whose result comes later."""
    return result.get("resultType") == TASK


APPS = "io.modelcontextprotocol/ui"
SKILLS = "io.modelcontextprotocol/skills"
TASKS = "io.modelcontextprotocol/tasks"

KNOWN = (APPS, SKILLS, TASKS)

WHILE_STARTING: Mapping[str, Mapping[str, Any]] = {APPS: {}, SKILLS: {"directoryRead": True}, TASKS: {}}
"""What clients are told while a server starts. Most clients ask once, when they start the gateway, and would never
hear of an extension that is declared later; one that no server turns out to have only finds nothing.
"""

_NOTHING: Mapping[str, Any] = {}


def extension_of(capabilities: Mapping[str, Any], identifier: str) -> Mapping[str, Any] | None:
    """The settings with which capabilities declare an extension; None if they do not. Settings that are not an object
    count as none, because servers write an empty object in several ways.
    """
    extensions = capabilities.get("extensions")
    settings = extensions.get(identifier) if isinstance(extensions, dict) else None
    if settings is None or settings is False:
        return None
    return settings if isinstance(settings, dict) else _NOTHING


def needed(identifier: str) -> dict[str, Any]:
    """The data of the error for a client that did not declare an extension."""
    return {"requiredCapabilities": {"extensions": {identifier: {}}}}


PAGE_SCHEME = "ui://"
_OLD_KEY = "ui/resourceUri"
_MODEL, _APP = "model", "app"


@dataclass(frozen=True)
class AppTool:
    """What a tool declares for hosts that show pages."""

    page: str = ""
    """The URI of the page that shows its results, at its own server; "" if it has none."""
    is_for_apps_only: bool = False
    """Whether pages may call it and models may not see it."""


NO_APP = AppTool()


def app_tool(meta: Any) -> AppTool | None:
    """What a definition's `_meta` declares for hosts that show pages; None if nothing."""
    if not isinstance(meta, dict) or ("ui" not in meta and _OLD_KEY not in meta):
        return None
    declared = meta.get("ui")
    declared = declared if isinstance(declared, dict) else _NOTHING
    page = declared.get("resourceUri", meta.get(_OLD_KEY))
    page = page if isinstance(page, str) and page.startswith(PAGE_SCHEME) else ""
    visibility = declared.get("visibility")
    is_only = isinstance(visibility, list) and _APP in visibility and _MODEL not in visibility
    return AppTool(page, is_only) if page or isinstance(visibility, list) else None


def with_page(meta: Mapping[str, Any], page: str) -> dict[str, Any]:
    """The `_meta` of a tool or a result that names this page, in the keys that name one already, or else in the newer
    one. Everything else in it stays.
    """
    declared = meta.get("ui")
    is_old_only = _OLD_KEY in meta and not isinstance(declared, Mapping)
    found = {**meta} if is_old_only else {**meta, "ui": {**(declared or {}), "resourceUri": page}}
    return {**found, _OLD_KEY: page} if _OLD_KEY in meta else found
