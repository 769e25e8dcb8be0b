"""Phrases of at most five words from a tool's name: `get_card_comments` is "Get card comments". Pure.

Called by `five_words`. The verb comes first wherever it stands in the name; what stands before it is often the name of
a server, which the caller says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from mcp_optimizer.compression.descriptions import MOST_WORDS
from mcp_optimizer.compression.phrases import Phrase
from mcp_optimizer.compression.word_classes import ACRONYMS, CONJUNCTIONS, NOUNS_TOO, PREPOSITIONS, VERBS

LONGEST_NAME = 200
"""Characters of a name that are read."""

_FIRST_IN_NAMES = frozenset(
    "copy download export import list open query run search set show start stop test update upload view".split()
)
_OF_NAME = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[^\W\d_A-Z]+\d*|[A-Z]+\d*|\d+[a-z]?(?![a-z])|\d+")


def name_words(name: str) -> tuple[str, ...]:
    """The words of a name in snake, camel or kebab case, in lower case."""
    found = [word.lower() for word in _OF_NAME.findall(name[:LONGEST_NAME])]
    return tuple(found[:-1] if len(found) > 2 and found[-1] == "tool" else found)


def from_name(words: Sequence[str], spelling: Mapping[str, str], namespaces: frozenset[str]) -> Iterator[Phrase]:
    """Phrases from a tool's name: its verb first, without and with what stands before the verb."""
    if not words:
        return
    at = _verb_in(words)
    written = [_spelled(word, spelling, namespaces if word is words[0] else frozenset()) for word in words]
    if at is None:
        yield from _short_name((), written)
        return
    before, behind = written[:at], written[at + 1 :]
    if not behind or behind[0] in PREPOSITIONS:
        # `browser_click` does not click the browser: a server's name is no object.
        has_object = at < 3 and not (before and words[0] in namespaces)
        for phrase in _short_name((words[at],), [*before, *behind]):
            yield phrase._replace(is_whole=phrase.is_whole and has_object)
        return
    if at > 1:
        # Several words before the verb: which of them are the server's cannot be told.
        yield from (phrase._replace(is_whole=False) for phrase in _short_name((words[at],), behind))
        return
    is_space = not before or before[0].lower() in namespaces
    for rest in (behind, [*before, *behind]) if is_space else ([*before, *behind], behind):
        yield from _short_name((words[at],), rest)


def _spelled(word: str, spelling: Mapping[str, str], namespaces: frozenset[str]) -> str:
    if word in spelling or word in ACRONYMS:
        return spelling.get(word) or word.upper()
    return word.capitalize() if word in namespaces else word


def _verb_in(words: Sequence[str]) -> int | None:
    """Where a name's verb stands: `list_boards`, `netbox_get_object`, `workflows-list`."""
    strong = [at for at, word in enumerate(words) if word in VERBS and word not in NOUNS_TOO]
    # An add-on is a thing.
    strong = [at for at in strong if words[at : at + 2] != ("add", "on")]
    if words[0] in VERBS and (not strong or strong[0] == 0 or words[0] in _FIRST_IN_NAMES):
        return 0
    if strong:
        return strong[0]
    weak = [at for at, word in enumerate(words) if word in _FIRST_IN_NAMES]
    return weak[-1] if weak else None


def _short_name(verb: tuple[str, ...], rest: Sequence[str]) -> Iterator[Phrase]:
    room = MOST_WORDS - len(verb)
    if len(rest) <= room:
        ends = [word for word in rest[-1:] if word in PREPOSITIONS or word in CONJUNCTIONS]
        yield Phrase((*verb, *rest), is_whole=bool(verb and rest) and not ends and rest[0] not in PREPOSITIONS)
        return
    end = next((at for at in range(room, 0, -1) if rest[at] in PREPOSITIONS), 0)
    yield Phrase((*verb, *(rest[:end] if end else rest[-room:])), is_whole=end > 0)
