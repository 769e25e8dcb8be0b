"""What `servers` and `doctor` say to people about a server, of the facts that programs get."""

from __future__ import annotations

from typing import Any

from mcp_optimizer.runtime.terminal_text import counted


def changes_of(row: dict[str, Any]) -> list[str]:
    """What a person should know about tools and instructions that are not as they were approved."""
    held, announced, said = row.get("held", []), row.get("announced", []), row.get("instructions")
    return [
        *([f"{counted(len(held), 'tool')} held until approved"] if held else []),
        *([f"{counted(len(announced), 'tool')} changed since approved"] if announced else []),
        *([f"instructions {'held until' if said['held'] else 'changed since'} approved"] if said else []),
    ]
