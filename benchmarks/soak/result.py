"""The page with the results of the long runs, which has a part for each of them."""

from __future__ import annotations

from benchmarks.paths import RESULTS

RESULT = RESULTS / "soak.md"
_TITLE = "# Soak\n"


def write_part(title: str, command: str, text: str) -> None:
    """Write one part anew and leave the others as they are."""
    before = RESULT.read_text(encoding="utf-8") if RESULT.exists() else _TITLE
    parts = [part for part in before.split("\n## ")[1:] if not part.startswith(f"{title}\n")]
    parts.append(f"{title}\n\n`{command}`\n\n{text}\n")
    written = sorted(part.strip("\n") for part in parts)
    RESULT.write_text("".join([_TITLE, *(f"\n## {part}\n" for part in written)]), encoding="utf-8")
