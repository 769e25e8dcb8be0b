"""What scripts may do, as the settings say it, and where a result says what one did. Values only."""

from __future__ import annotations

from enum import StrEnum

from mcp_optimizer.domain.principal import Risk

SCRIPT_META_KEY = "mcp-optimizer/script"
"""The `_meta` key for what a script did: its calls, and the tokens that stayed out of the context."""


class ScriptMode(StrEnum):
    """Which tools scripts may call."""

    OFF = "off"
    """There are no scripts."""
    READ = "read"
    """Tools that only read."""
    WRITE = "write"
    """Every tool, if the request names those that change something."""

    @property
    def most(self) -> Risk:
        """The worst class of tools that a script calls."""
        return Risk.DESTRUCTIVE if self is ScriptMode.WRITE else Risk.READ


SCRIPTS_OFF = (
    'Scripts are off. Enable them with scripts = "read" in the settings file (or "write", for scripts that change '
    'something), or with --scripts read. They need the extra: pip install "mcp-optimizer-gateway[scripts]".'
)
