"""Describes each tool of a catalog in at most five words, as a person would. Pure.

The words come from the tool's own first sentence, name and title: a verb, its object, and a distinction from other
tools. If no phrases distinguish two tools, this is reported and their sentences are used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from mcp_optimizer.compression.clauses import without_lead
from mcp_optimizer.compression.notes import first_sentence
from mcp_optimizer.compression.phrases import LONGEST_NAME, Phrase, from_name, from_sentence, from_thing, name_words
from mcp_optimizer.compression.sentences import sentences
from mcp_optimizer.compression.short_descriptions import LONGEST_SHORT, MOST_WORDS, ShortDescription
from mcp_optimizer.compression.word_classes import ARTICLES, CONJUNCTIONS, LIGHT, PREPOSITIONS, VERBS, base_form
from mcp_optimizer.domain.tools import McpTool
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.search.deprecation import sentence as deprecation
from mcp_optimizer.search.words import terms

_LONGEST_SOURCE = 600
_LONGEST_WORD = 30
_MOST_TRIED = 12
_SHARED_BY = 5
"""If this many tools' names begin with the same word that is no verb, it is taken for their server's name."""
_DANGLING = ARTICLES | CONJUNCTIONS | (PREPOSITIONS - {"off", "below", "above", "inside"})
_SECTION = regex(r"\n\s*(?:[A-Z][\w ]{0,30}:|[-*•✓⚡]|Args|Returns)")
_MARK = regex(r"[，。、；：！？,.;:!?()（）\n]")
_SPELLED = regex(r"\b(?:[A-Z]+[a-z]+[A-Z0-9]\w*|[a-z]+[A-Z]\w*|[A-Z]{2,5}s?|(?<=[a-z] )[A-Z][a-z]+)\b")


def five_words(tools: Sequence[McpTool]) -> list[ShortDescription]:
    """Short descriptions for all tools of a catalog, each chosen to differ from the others."""
    namespaces = _namespaces(tools)
    chosen = [next(_texts(tool, namespaces), "") for tool in tools]
    keys = [_key(text) for text in chosen]
    taken = Counter(keys)
    for at, tool in enumerate(tools):
        if taken[keys[at]] < 2 or not keys[at]:
            continue
        for text in islice(_texts(tool, namespaces), 1, _MOST_TRIED):
            if (key := _key(text)) and not taken[key]:
                taken[keys[at]] -= 1
                taken[key] += 1
                chosen[at], keys[at] = text, key
                break
    return [
        ShortDescription(text, taken[key] == 1 and _says_something(tool, text, key))
        for tool, text, key in zip(tools, chosen, keys, strict=True)
    ]


def _says_something(tool: McpTool, text: str, key: frozenset[str]) -> bool:
    """Whether a short description has a verb, or says more than the name; without a description the name must do."""
    if not key or not (tool.description or "").strip():
        return bool(key)
    has_verb = any(map(base_form, text.split())) or not ARTICLES.isdisjoint(text.split()[1:2])
    return has_verb or not key <= frozenset(terms(tool.name[:LONGEST_NAME]))


def _key(text: str) -> frozenset[str]:
    """The words that distinguish a short description."""
    return frozenset(terms(text))


def _namespaces(tools: Sequence[McpTool]) -> frozenset[str]:
    first = Counter(words[0] for tool in tools if (words := name_words(tool.name)) and len(words) > 1)
    return frozenset(word for word, count in first.items() if count >= _SHARED_BY and not base_form(word))


def _texts(tool: McpTool, namespaces: frozenset[str]) -> Iterator[str]:
    """The possible short descriptions of a tool, best first; after the first one, only complete phrases."""
    later: list[Phrase] = []
    is_first = True
    for phrase in _phrases(tool, namespaces):
        if not _is_usable(phrase.words):
            continue
        if phrase.is_whole:
            is_first = False
            yield _written(phrase.words)
        else:
            later.append(phrase)
    if is_first:
        yield from (_written(phrase.words) for phrase in later)


def _phrases(tool: McpTool, namespaces: frozenset[str]) -> Iterator[Phrase]:
    source = _source(tool.description or "")
    sentence = without_lead(first_sentence(source))
    words = name_words(tool.name)
    named = frozenset(map(base_form, words)) | frozenset(words)
    spelling = {match.lower(): match for match in _SPELLED.findall(source) if f" {match.lower()}" not in source}
    is_said = not deprecation(source)
    by_name = list(from_name(words, spelling, namespaces))
    if is_said:
        said = _most_telling(from_sentence(sentence, named), frozenset(terms(tool.name[:LONGEST_NAME])))
        if said and by_name and _says_more(by_name[0], said[0]):
            yield by_name[0]
        yield from said
        yield from _in_another_script(source)
    if tool.title:
        yield from _from_title(tool.title, named, spelling)
    yield from by_name
    if is_said:
        has_verb = any(word in VERBS for word in words)
        yield from (phrase._replace(is_whole=phrase.is_whole and not has_verb) for phrase in from_thing(sentence))
    if is_said and not by_name:
        for other in islice(sentences(source), 1, 3):
            yield from from_sentence(without_lead(other), named)


def _most_telling(phrases: Iterator[Phrase], named: frozenset[str]) -> list[Phrase]:
    """The phrases of a sentence, ordered by the number of words that the name lacks."""
    usable = [phrase for phrase in phrases if _is_usable(phrase.words)]
    return sorted(usable, key=lambda phrase: (not phrase.is_whole, -len(_key(" ".join(phrase.words)) - named)))


def _says_more(name: Phrase, said: Phrase) -> bool:
    """Whether a name has a word that its sentence has no room for: "Get pull request activity"."""
    if not name.is_whole or not said.is_cut:
        return False
    if said.words[0] in LIGHT:
        return True
    in_name, in_sentence = terms(" ".join(name.words[1:])), terms(" ".join(said.words[1:]))
    return len(in_name) >= len(in_sentence) and len(in_sentence) < 2 and not set(in_name) <= set(in_sentence)


def _source(description: str) -> str:
    text = description[:_LONGEST_SOURCE].strip()
    section = _SECTION.search(text)
    return text[: section.start()] if section else text


def _from_title(title: str, named: frozenset[str], spelling: dict[str, str]) -> Iterator[Phrase]:
    """Phrases from a title, whose words may be capitalised unlike those of a sentence."""
    shown = " ".join(
        spelling.get(word.lower(), word if word[1:] != word[1:].lower() else word.lower())
        for word in title[:LONGEST_NAME].split()
    )
    return from_sentence(without_lead(shown), named)


def _in_another_script(text: str) -> Iterator[Phrase]:
    """The first clause of a text in another script than Latin, if it is short."""
    clause = _MARK.split(text[:200].lstrip("*#-•【[( \t\n"), maxsplit=1)[0].strip()
    letters = [letter for letter in clause if letter.isalpha()]
    if letters and sum(ord(letter) >= 0x250 for letter in letters) * 2 > len(letters):
        yield Phrase(tuple(clause.split()))


def _is_usable(words: Sequence[str]) -> bool:
    text = " ".join(words)
    if not 0 < len(words) <= MOST_WORDS or len(text) > LONGEST_SHORT or not text.isprintable():
        return False
    return (
        all(len(word) <= _LONGEST_WORD for word in words) and words[-1].lower() not in _DANGLING and bool(terms(text))
    )


def _written(words: Sequence[str]) -> str:
    text = " ".join(words)
    return text[:1].upper() + text[1:]
