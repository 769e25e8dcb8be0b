"""Parses the leading clause of an English sentence: its verb, its object, and its additions. Pure.

Called by `phrases` and `five_words`. Knows words only by their classes: "Create a card in a column, and return it" has
the verb "create" and the chunks "a card" and "in a column". `without_lead` first removes introductions such as
"Purpose:" or "This tool allows you to".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mcp_optimizer.compression.word_classes import (
    ADJECTIVES,
    ARTICLES,
    AUXILIARIES,
    BEHIND,
    CONJUNCTIONS,
    DETERMINERS,
    ENDINGS,
    FILLERS,
    GERUNDS,
    INTENDED,
    NOT_OF_TOOLS,
    NOUNS_TOO,
    PARTICIPLES,
    PARTICLES,
    PREPOSITIONS,
    RELATIVES,
    SOFT,
    VERBS,
    base_form,
    is_action,
    plain_form,
)
from mcp_optimizer.runtime.patterns import regex

_MOST_TOKENS = 40

_BESIDE = regex(r"\s?\([^()]*\)|\s?\[[^\[\]]*\]|https?://\S+|\b(?:one|1) or more(?= (?!of\b))|\bup to \d+\b", re.I)
_TOKEN = regex(r"\S+")
EDGES = "\"'`*_“”‘’«»<>{}[]()~|•#!?.,;:…"
"""Punctuation around words."""
_STOPS = ",;:.!?)…"


class Token(NamedTuple):
    """A word of a sentence, and the punctuation that ends its clause after it, if any."""

    text: str
    lower: str
    ends: str


class Clause(NamedTuple):
    """The verb in its base form (empty if there is none), all tokens after it, and the same tokens in chunks.

    It is open if the words after the chunks modify the last one: "the cards | that are blocked".
    """

    verb: tuple[str, ...]
    rest: Sequence[Token]
    chunks: Sequence[Sequence[Token]]
    is_open: bool = False


def read_clause(sentence: str, named: frozenset[str]) -> Clause:
    """The clause at the beginning of a sentence; `named` are the words of the tool's name."""
    tokens = _tokens(sentence)
    verb, rest = _verb(tokens, named)
    if verb and rest and rest[0].lower in PARTICLES:
        verb, rest = (*verb, rest[0].lower), rest[1:]
    if verb[-1:] == ("search",) and len(rest) > 3 and rest[0].lower == "for":
        rest = rest[1:]
    chunks = _chunks(rest)
    is_open = _is_open(chunks, rest)
    if is_open and len(chunks) > 1 and chunks[-1][0].lower != "of":
        return Clause(verb, rest, chunks[:-1])
    return Clause(verb, rest, chunks, is_open)


def _is_open(chunks: Sequence[Sequence[Token]], rest: Sequence[Token]) -> bool:
    said = sum(map(len, chunks))
    if not chunks or chunks[-1][-1].ends or said >= len(rest):
        return False
    return rest[said].lower in RELATIVES or rest[said].lower in AUXILIARIES or rest[said].lower in DETERMINERS


def read_thing(sentence: str) -> Clause:
    """A clause without a verb, such as "Recent media for a hashtag"; no chunks if it is a whole sentence."""
    tokens = _tokens(sentence)
    chunks = _chunks(tokens)
    said = sum(map(len, chunks))
    if not chunks or any(is_action(token.lower) for token in tokens[: said + 1]):
        return Clause((), tokens, ())
    ends = said >= len(tokens) or tokens[said - 1].ends in {*",;:.!", "-", "–", "—"}
    return Clause((), tokens, chunks if ends and said > 1 and chunks[0][0].lower not in PREPOSITIONS else ())


def is_thing(word: str) -> bool:
    """Whether a word can be a noun, unlike an article or a preposition."""
    return word not in PREPOSITIONS and word not in CONJUNCTIONS and word not in SOFT and word not in DETERMINERS


def _tokens(sentence: str) -> list[Token]:
    """The words of a sentence, without text in brackets."""
    found: list[Token] = []
    for match in _TOKEN.finditer(_BESIDE.sub("", sentence)):
        raw = match.group()
        text = raw.strip(EDGES)
        if text.strip("-–—/=>→+"):
            mark = raw.rstrip("\"'`*_”’")[-1:]
            found.append(Token(text, text.lower().replace("’", "'"), mark if mark in _STOPS else ""))
        elif found:
            # A dash, arrow or plus between blanks ends a clause.
            found[-1] = found[-1]._replace(ends=raw[0])
        if len(found) >= _MOST_TOKENS:
            break
    return found


def _verb(tokens: Sequence[Token], named: frozenset[str]) -> tuple[tuple[str, ...], Sequence[Token]]:
    """The verb, with an adverb before it or a second verb after it, and the tokens that follow."""
    at = next((at for at, token in enumerate(tokens) if token.lower not in FILLERS), len(tokens))
    adverb: tuple[str, ...] = ()
    if _is_adverb(tokens, at):
        adverb, at = (tokens[at].lower,), at + 1
    base = (base_form(tokens[at].lower) or _unknown_verb(tokens, at)) if at < len(tokens) else ""
    if not base or not _does_something(base, tokens, at, named):
        return (), ()
    verbs, end = _with_others(tokens, at)
    if len(verbs) > 2:
        is_all = {"create", "add"} & set(verbs) and {"delete", "remove", "update"} & set(verbs)
        return ("manage",) if is_all else (*adverb, base), tokens[end:]
    if len(verbs) == 2:
        return (*adverb, base, tokens[end - 2].lower, verbs[1]), tokens[end:]
    return (*adverb, base), tokens[end:]


def _unknown_verb(tokens: Sequence[Token], at: int) -> str:
    """The base form of an unknown first word that is followed by an article, as in "Burn a card": it can only be a
    verb.
    """
    word = tokens[at].lower
    following = tokens[at + 1].lower if at + 1 < len(tokens) and not tokens[at].ends else ""
    if following not in ARTICLES or not word.isalpha() or not word.isascii() or not is_thing(word) or word in ENDINGS:
        return ""
    return plain_form(word)


def _is_adverb(tokens: Sequence[Token], at: int) -> bool:
    if at + 1 >= len(tokens) or not base_form(tokens[at + 1].lower):
        return False
    return tokens[at].lower.endswith("ly") or tokens[at].lower in {"batch", "bulk"}


def _does_something(base: str, tokens: Sequence[Token], at: int, named: frozenset[str]) -> bool:
    """Whether the first word is the verb for the tool's action, and not a noun or advice to the reader."""
    following = tokens[at + 1].lower if at + 1 < len(tokens) and not tokens[at].ends else ""
    if f"{base} {following}" == "take in":
        return False
    if following in {"of", "is", "are", "was", "has"} or (base in NOUNS_TOO and is_action(following)):
        return False
    return base not in NOT_OF_TOOLS or base in named or base in INTENDED


def _with_others(tokens: Sequence[Token], at: int) -> tuple[list[str], int]:
    """The verbs of "create, read or update", and the position of their object."""
    verbs, place = [base_form(tokens[at].lower)], at
    while place + 1 < len(tokens):
        joined = tokens[place + 1].lower in CONJUNCTIONS
        step = 2 if joined else 1
        if place + step >= len(tokens) or not (joined or tokens[place].ends):
            break
        other = base_form(tokens[place + step].lower)
        if not other:
            break
        verbs.append(other)
        place += step
        if joined:
            return verbs, place + 1
    return (verbs, place + 1) if len(verbs) > 2 else (verbs[:1], at + 1)


def _chunks(tokens: Sequence[Token]) -> list[list[Token]]:
    """The objects and additions of a clause, up to its end."""
    chunks: list[list[Token]] = []
    current: list[Token] = []
    for at, token in enumerate(tokens):
        following = tokens[at + 1] if at + 1 < len(tokens) and not token.ends else None
        if _ends_clause(token, following, current):
            break
        opens = token.lower in PREPOSITIONS or token.lower in CONJUNCTIONS or _is_participle(token, following, current)
        if opens and current:
            chunks.append(current)
            current = []
        current.append(token)
        if token.ends and not _is_adjective(token):
            break
    return _complete([*chunks, current] if current else chunks)


def _ends_clause(token: Token, following: Token | None, current: Sequence[Token]) -> bool:
    word, after = token.lower, following.lower if following else ""
    if word in ENDINGS or word in GERUNDS:
        return True
    if word in DETERMINERS and any(is_thing(before.lower) for before in current):
        return True
    if word == "to":
        return after in VERBS
    if word in PREPOSITIONS:
        return after.endswith("ing") and base_form(after) not in NOUNS_TOO and bool(base_form(after))
    return word in CONJUNCTIONS and (is_action(after) or after in ENDINGS or after in {"return", "returns", ""})


def _is_participle(token: Token, following: Token | None, current: Sequence[Token]) -> bool:
    """Whether "configured" begins an addition to the words before it: "teams configured in Grafana"."""
    if not any(is_thing(before.lower) for before in current):
        return False
    if token.lower in BEHIND:
        return following is not None and following.lower in PREPOSITIONS
    if not _ends_like_one(token.lower):
        return False
    return following is None or following.lower in PREPOSITIONS or following.lower in DETERMINERS


def _ends_like_one(word: str) -> bool:
    return word.endswith("ed") or word in PARTICIPLES


def _is_adjective(token: Token) -> bool:
    return token.lower in SOFT or token.lower in FILLERS or token.lower in ADJECTIVES


def _complete(chunks: Sequence[list[Token]]) -> list[list[Token]]:
    """The chunks up to the first without a noun. A preposition or participle takes the next one with it."""
    found: list[list[Token]] = []
    for chunk in chunks:
        if found and (not _stands_alone(found[-1]) or _share_a_thing(found[-1], chunk)):
            found[-1] = [*found[-1], *chunk]
        else:
            found.append(chunk)
    while found and not _stands_alone(found[-1]):
        found.pop()
    return found if found and all(map(_has_thing, found)) else found[: next(_without_thing(found), 0)]


def _stands_alone(chunk: Sequence[Token]) -> bool:
    is_participle = _ends_like_one(chunk[0].lower) or chunk[0].lower in BEHIND
    return _has_thing(chunk) and not (len(chunk) == 1 and is_participle and not chunk[0].ends)


def _share_a_thing(one: Sequence[Token], other: Sequence[Token]) -> bool:
    """Whether the last word belongs to both parts: "10-K or 10-Q filings"."""
    if other[0].lower not in CONJUNCTIONS or len(other) < 3 or one[-1].lower.endswith("s"):
        return False
    return other[-1].lower.endswith("s") and not any(token.lower in DETERMINERS for token in (*one, *other))


def _has_thing(chunk: Sequence[Token]) -> bool:
    return any(is_thing(token.lower) and not _is_adjective(token) for token in chunk)


def _without_thing(chunks: Sequence[Sequence[Token]]) -> Iterator[int]:
    return (at for at, chunk in enumerate(chunks) if not _has_thing(chunk))


_LEAD = regex(
    r"(?:(?:please|you can|always|first)\s+)?(?:"
    r"(?:use|call|invoke|run)\s+(?:this|the|it)(?:\s+(?:tool|function|endpoint|api|method|command))?\s+"
    r"(?:(?:when|whenever|if)\s+(?:you|users?|the user)\s+(?:needs?|wants?|asks?|would like)\s+)?(?:to|for)"
    r"|(?:this|the|an?)\s+(?:mcp\s+)?(?:tool|function|endpoint|api|method|command|action|operation)"
    r"(?:\s+(?:which|that))?(?:\s+(?:(?:is|can be|should be)\s+(?:used|useful|designed)\s+(?:to|for)|will|can|to|for))?"
    r"|tool\s+(?:to|for|that)|used\s+(?:to|for)|useful\s+(?:to|for)|utility\s+(?:to|for)|ability to|a way to"
    r")\s+",
    re.I,
)
_LETS = regex(
    r"(?:allows?|enables?|lets?|helps?)\s+(?:(?:you|users?|the user|agents?|llms?|clients?|the model|ai agents?)\s+)"
    r"(?:to\s+)?|(?:allows?|helps?)\s+to\s+|(?:provides?|gives?)\s+(?:the\s+|an?\s+)?(?:ability|way|means)\s+to\s+"
    r"|(?:attempts?|try)\s+to\s+",
    re.I,
)
_LABEL = regex(r"(?:\[[^\]]{1,40}\]|\([^)]{1,40}\)|【[^】]{1,20}】)\s*|[\w/+ -]{1,30}?(?::|\s[-–—|])\s+(?=\w)")
_LISTS = regex(r"(?:(?:get|return|retrieve|fetch|show|provide)s?\s+)?(?:an?\s+|the\s+)?(?:\w+\s+)?lists?\s+of\s+", re.I)


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
