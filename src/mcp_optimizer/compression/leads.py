"""Takes off what stands before the point of a sentence: "Purpose:", "This tool allows you to". Pure.

Called by `five_words` before a sentence is read.
"""

from __future__ import annotations

import re

from mcp_optimizer.compression.clauses import EDGES
from mcp_optimizer.compression.word_classes import base_form

_LEAD = re.compile(
    r"(?:(?:please|you can|always|first)\s+)?(?:"
    r"(?:use|call|invoke|run)\s+(?:this|the|it)(?:\s+(?:tool|function|endpoint|api|method|command))?\s+"
    r"(?:(?:when|whenever|if)\s+(?:you|users?|the user)\s+(?:needs?|wants?|asks?|would like)\s+)?(?:to|for)"
    r"|(?:this|the|an?)\s+(?:mcp\s+)?(?:tool|function|endpoint|api|method|command|action|operation)"
    r"(?:\s+(?:which|that))?(?:\s+(?:(?:is|can be|should be)\s+(?:used|useful|designed)\s+(?:to|for)|will|can|to|for))?"
    r"|tool\s+(?:to|for|that)|used\s+(?:to|for)|useful\s+(?:to|for)|utility\s+(?:to|for)|ability to|a way to"
    r")\s+",
    re.I,
)
_LETS = re.compile(
    r"(?:allows?|enables?|lets?|helps?)\s+(?:(?:you|users?|the user|agents?|llms?|clients?|the model|ai agents?)\s+)"
    r"(?:to\s+)?|(?:allows?|helps?)\s+to\s+|(?:provides?|gives?)\s+(?:the\s+|an?\s+)?(?:ability|way|means)\s+to\s+"
    r"|(?:attempts?|try)\s+to\s+",
    re.I,
)
_LABEL = re.compile(r"(?:\[[^\]]{1,40}\]|\([^)]{1,40}\)|【[^】]{1,20}】)\s*|[\w/+ -]{1,30}?(?::|\s[-–—|])\s+(?=\w)")
_LISTS = re.compile(
    r"(?:(?:get|return|retrieve|fetch|show|provide)s?\s+)?(?:an?\s+|the\s+)?(?:\w+\s+)?lists?\s+of\s+", re.I
)


def without_lead(sentence: str) -> str:
    """A sentence without a label and without "This tool allows you to"; "Returns a list of" becomes "List"."""
    sentence = sentence.lstrip(EDGES.replace("[", "").replace("(", "") + " \t-–—=>")
    start = next((at for at, letter in enumerate(sentence) if letter.isalnum() or letter in "([【"), len(sentence))
    sentence = sentence[start:]
    for _ in range(2):
        label = _LABEL.match(sentence)
        behind = sentence[label.end() :].lstrip(EDGES + " ") if label else ""
        # "Market overview: indices" is about the overview; "Purpose: Get indices" is not about the purpose.
        if label and (sentence[0] in "([【" or (_begins_with_verb(behind) and not _begins_with_verb(sentence))):
            sentence = behind.lstrip("-–— ")
        for lead in (_LEAD, _LETS):
            if found := lead.match(sentence):
                sentence = sentence[found.end() :]
    lists = _LISTS.match(sentence)
    return f"List {sentence[lists.end() :]}" if lists else sentence


def _begins_with_verb(text: str) -> bool:
    words = text[:100].split(None, 1)
    return bool(words and base_form(words[0].strip(EDGES))) or _LEAD.match(text) is not None
