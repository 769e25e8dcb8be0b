"""What the schema-compression document asks of each phase on its own example, a kanban server of 65 tools.

Shown by `report --demo` beside what the phases save on the demo servers, and tested there. Other catalogs have no
targets: theirs may be a tenth of the size.
"""

from __future__ import annotations

from collections.abc import Mapping

KANBAN_TARGETS: Mapping[str, int] = {
    "schema compression": 5_600,
    "profile registration": 24_300,
    "descriptions": 2_000,
}
"""Tokens, by phase."""
