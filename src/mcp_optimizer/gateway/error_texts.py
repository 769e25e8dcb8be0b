"""Writes an error as the text that a model reads. Called where calls fail and where their cost is counted. Pure."""

from __future__ import annotations

from mcp_optimizer.errors import InvalidArguments, OptimizerError
from mcp_optimizer.largejson.compact_json import compact

_LONGEST_TEXT = 10_000
"""Default maximum bytes of an error that a model reads."""


def for_model(error: OptimizerError, most: int = _LONGEST_TEXT) -> str:
    """The text a model reads: the problem, and what it needs to get the next call right.

    A text of more than `most` bytes, and so possibly tokens, keeps only its two ends. The schema is not shortened here.
    """
    text = _both_ends(str(error), most)
    if not isinstance(error, InvalidArguments):
        return text
    title = (
        'Schema (abbreviated; find_tool with limit=1 and detail="full" shows all)' if error.abbreviated else "Schema"
    )
    return f"{text} {title}: {compact(error.schema)}"


def _both_ends(text: str, most: int) -> str:
    if len(text) * 4 <= most or len(text.encode("utf-8", "surrogatepass")) <= most:
        return text
    # This many characters fit in any encoding.
    half = most // 8 - 1
    return f"{text[:half]} … {text[-half:]}"
