"""Words that say what somebody wants done, or what a tool does, where several rooms need the same ones. Pure data."""

from __future__ import annotations

from typing import Final

DELETING: Final = (
    "delete remove drop erase clear purge destroy discard uninstall unlink wipe trash forget rid detach unassign "
    "revoke prune"
)
"""Words for making something go away, most common first. Search and the risk class of a tool both start from these."""
