"""Words for actions that a request wants or a tool performs, for rooms that need the same ones. Pure data."""

from __future__ import annotations

from typing import Final

DELETING: Final = (
    "delete remove drop erase clear purge destroy discard uninstall unlink wipe trash forget rid detach unassign "
    "revoke prune"
)
"""Words for deleting, most common first. Both search and the risk class of a tool start from these."""
