"""How well a piece of text answers a few search words. Used by the board and card searches."""

import re
from difflib import SequenceMatcher

WORD = re.compile(r"\w+")
CLOSE_ENOUGH = 0.8


def match_score(query: str, text: str) -> float:
    """From 0 to 1: the share of query words found in the text, a misspelt word counting a little less."""
    wanted = WORD.findall(query.casefold())
    present = set(WORD.findall(text.casefold()))
    if not wanted or not present:
        return 0.0
    return sum(word_score(word, present) for word in wanted) / len(wanted)


def word_score(word: str, present: set[str]) -> float:
    if word in present:
        return 1.0
    if any(other.startswith(word) for other in present):
        return 0.9
    closest = max(SequenceMatcher(None, word, other).ratio() for other in present)
    return closest * 0.8 if closest >= CLOSE_ENOUGH else 0.0
