"""Text for people at a terminal. Pure.

Text from other sources is made safe: it cannot move the cursor, change colours or reorder characters.
"""

from __future__ import annotations

from mcp_optimizer.runtime.patterns import regex

# Newlines and tabs are layout and stay. Lone surrogates cannot be printed at all.
_CONTROL = regex(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


# Terminal escape sequences: colours, cursor movements, titles and links.
_SEQUENCE = regex(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x9b[0-?]*[ -/]*[@-~]")


def printable(text: str) -> str:
    return _CONTROL.sub("", _SEQUENCE.sub("", text))


def printable_json(text: str) -> str:
    """JSON that is the same to programs but inert on a terminal: control characters occur only in its strings."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def in_a_line(text: str) -> str:
    """Untrusted text on a single line, so that it cannot look like a line of ours."""
    return " ".join(printable(text).split())


def counted(count: int, noun: str, plural: str = "") -> str:
    """`1 tool`, `1,200 tools`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {plural or f'{noun}s'}"


def span(seconds: float) -> str:
    """A length of time, roughly: `3 hours`."""
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length:
            return counted(int(seconds // length), unit)
    return counted(int(seconds), "second")
