"""Describes each tool of a catalog in at most five words, as a person would. Pure.

The words come from the tool's own first sentence, name and title: whole chunks of a clause, so that no phrase ends in
the middle of one. If no phrases distinguish two tools, this is reported and their sentences are used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from mcp_optimizer.compression.clauses import (
    ACRONYMS,
    ARTICLES,
    CONJUNCTIONS,
    DETERMINERS,
    ENDINGS,
    FILLERS,
    GIVING,
    LIGHT,
    NOUNS_TOO,
    PLACING,
    PREPOSITIONS,
    READING,
    SOFT,
    VERBS,
    WEAK,
    Clause,
    Token,
    article,
    base_form,
    is_thing,
    read_clause,
    read_thing,
    without_lead,
)
from mcp_optimizer.compression.notes import first_sentence
from mcp_optimizer.compression.sentences import sentences
from mcp_optimizer.compression.short_descriptions import LONGEST_SHORT, MOST_WORDS, ShortDescription
from mcp_optimizer.domain.tools import McpTool
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.search.deprecation import sentence as deprecation
from mcp_optimizer.search.words import terms

_RESTRICTS = frozenset({"without", "except", "excluding", "unless", "but"})
_ADDING = frozenset("across and at by containing in including matching on or using via with within".split())
_OF_ADJECTIVES = ("ed", "ing", "al", "ive", "able", "est", "ic", "ant", "ent", "ar", "ous", "ful", "ory")
_NO_NOUNS = frozenset("only new old other every each no two three top last next first raw open".split())
_WITH_NAMES = frozenset({"in", "on", "from", "within", "into", "across"})
_NO_NAMES = frozenset({"ID", "IDs", "JSON", "CSV", "URL", "HTML", "PDF", "SQL", "API", "HTTP", "UUID"})
_OWNING = frozenset("a an the its their this these those all available".split())
_COUNTING = DETERMINERS | {"one"}


class Phrase(NamedTuple):
    """The words of a phrase.

    It is not whole if it lacks something needed to understand it, and cut if its sentence says more.
    """

    words: tuple[str, ...]
    is_whole: bool = True
    is_cut: bool = False


def from_sentence(sentence: str, named: frozenset[str]) -> Iterator[Phrase]:
    """Phrases from a sentence that begins with a verb, best first; `named` are the words of the tool's name."""
    clause = read_clause(sentence, named)
    if not clause.verb:
        return
    is_one = clause.rest and clause.rest[0].lower in {"a", "an", "one"}
    if "list" in named and clause.verb[0] in GIVING and not is_one:
        clause = clause._replace(verb=("list", *clause.verb[1:]))
    yield from _as_it_is(clause)
    yield from _composed(clause)
    if CONJUNCTIONS & set(clause.verb):
        yield from _composed(clause._replace(verb=clause.verb[:1]))


def _composed(clause: Clause) -> Iterator[Phrase]:
    """Phrases of a clause; if long additions do not fit, phrases with proper names in their place come first."""
    if len(clause.chunks) > 1:
        named = _with_names(clause)
        if len(_fitting(named, range(len(named.chunks)))) > len(_fitting(clause, range(len(clause.chunks)))):
            yield from _of_chunks(named)
    yield from _of_chunks(clause)


def from_thing(sentence: str) -> Iterator[Phrase]:
    """Phrases from a sentence without a verb: "Recent media for a hashtag"."""
    yield from _composed(read_thing(sentence))


def _as_it_is(clause: Clause) -> Iterator[Phrase]:
    """The clause up to its first punctuation, if it is short enough: "Check that an instance answers"."""
    if not clause.rest and len(clause.verb) > 1:
        yield Phrase(clause.verb)
    end = next((at for at, token in enumerate(clause.rest, start=1) if token.ends), len(clause.rest))
    for tokens in (clause.rest[:end], _before_and(clause.rest[:end])):
        words = _shortened(clause.verb, [tokens])
        articles = sum(token.lower in DETERMINERS for token in tokens[1:])
        is_kept = articles == sum(word.lower() in DETERMINERS for word in words[len(clause.verb) + 1 :])
        is_listed = tokens and tokens[-1].ends == "," and tokens[-1].lower in WEAK
        if words and is_kept and is_thing(tokens[-1].lower) and tokens[-1].lower not in ENDINGS and not is_listed:
            yield Phrase(words)
            return


def _before_and(tokens: Sequence[Token]) -> Sequence[Token]:
    """The tokens before "and that", which begins another clause."""
    joins = (at for at, token in enumerate(tokens) if token.lower in CONJUNCTIONS and tokens[0].lower == "that")
    return tokens[: next(joins, 0)]


def _of_chunks(clause: Clause) -> Iterator[Phrase]:
    """The verb with its object and as many additions as fit, then with other additions, then with none."""
    if not clause.chunks:
        return
    seen: set[tuple[str, ...]] = set()
    restricted = clause.verb[:1] != () and clause.verb[-1] not in READING and _is_restricted(clause)
    if stacked := _stacked(clause):
        yield Phrase(stacked, not restricted and not clause.is_open, len(clause.chunks) > 2)
    for chosen in _choices(clause):
        words = _shortened(clause.verb, [clause.chunks[at] for at in chosen])
        if words and words not in seen:
            seen.add(words)
            is_whole = not restricted and not clause.is_open and not _is_missing(clause, chosen)
            yield Phrase(words, is_whole, len(chosen) < len(clause.chunks) or _is_first_of_list(clause, chosen))
    if not seen:
        yield from _cut(clause)


def _stacked(clause: Clause) -> tuple[str, ...]:
    """Stacks nouns: "Get pull request activity log" for "Get activity log for a pull request", one word too long."""
    if len(clause.chunks) < 2 or clause.chunks[1][0].lower not in {"of", "for"}:
        return ()
    if clause.chunks[1][1].lower not in ARTICLES or _shortened(clause.verb, clause.chunks[:2]):
        return ()
    first = [token.text for token in clause.chunks[0] if token.lower not in FILLERS and token.lower not in SOFT]
    owner = [token.text for token in clause.chunks[1][2:] if token.lower not in FILLERS]
    if clause.verb[-1:] == ("convert",) or not all(map(_can_stand_before, owner)) or not all(map(_is_noun, first)):
        return ()
    words = (*clause.verb, *owner, *first)
    return words if len(words) <= MOST_WORDS and len(set(words)) == len(words) else ()


def _can_stand_before(word: str) -> bool:
    return is_thing(word.lower()) and not word.endswith(("s", "ed", "’"))


def _is_noun(word: str) -> bool:
    """Whether a word lacks an adjective ending: "list the latest builds of a project" is not stacked."""
    lower = word.lower()
    return is_thing(lower) and lower not in _NO_NOUNS and not lower.endswith(_OF_ADJECTIVES) and "-" not in word


def _choices(clause: Clause) -> Iterator[list[int]]:
    """The chunks that a phrase may consist of, best first. The chunk before "of" is always kept."""
    chunks = clause.chunks
    plain = [at for at, chunk in enumerate(chunks) if at == 0 or chunk[0].lower not in CONJUNCTIONS]
    in_order = _fitting(clause, range(len(chunks)))
    without_others = _fitting(clause, plain)
    is_cut_off = 0 < len(in_order) < len(chunks) and chunks[in_order[-1]][0].lower in CONJUNCTIONS
    is_better = is_cut_off or len(without_others) > len(in_order)
    yield from (without_others, in_order) if is_better else (in_order, without_others)
    for at in plain[1:]:
        # Only additions may be omitted: "send to the archive" is not "send". "Of" belongs to the chunk before it.
        is_next = at == 1 or chunks[at][0].lower in _ADDING
        if is_next and all(chunk[0].lower in _ADDING for chunk in chunks[1:at]):
            yield [0, at]
    yield [0]


def _with_names(clause: Clause) -> Clause:
    """The clause with "in GitLab" for "in a GitLab project", where "project" does not fit."""
    chunks = [clause.chunks[0], *map(_named, clause.chunks[1:])]
    return clause._replace(chunks=chunks)


def _named(chunk: Sequence[Token]) -> Sequence[Token]:
    if chunk[0].lower not in _WITH_NAMES:
        return chunk
    things = [token for token in chunk[1:] if is_thing(token.lower) and token.lower not in FILLERS]
    end = next((at for at, token in enumerate(things) if not _is_name(token.text)), len(things))
    return [chunk[0], *things[:end]] if 0 < end < len(things) else chunk


def _is_name(word: str) -> bool:
    return word[:1].isupper() and not word.endswith(("'s", "’s")) and word not in _NO_NAMES


def _fitting(clause: Clause, order: Sequence[int]) -> list[int]:
    found: list[int] = []
    for at in order:
        if not _shortened(clause.verb, [clause.chunks[one] for one in (*found, at)]):
            break
        found.append(at)
    return found[:-1] if found and _is_half(clause.chunks, found[-1]) else found


def _is_half(chunks: Sequence[Sequence[Token]], at: int) -> bool:
    """Whether the second half of a pair follows: "from one language" needs "to another"."""
    behind = chunks[at + 1][0].lower if at + 1 < len(chunks) else ""
    return chunks[at][0].lower == "from" and behind in {"to", "into"}


def _is_missing(clause: Clause, chosen: Sequence[int]) -> bool:
    """Whether a noun such as "details" lacks its owner, or "put" its destination."""
    if _is_half(clause.chunks, chosen[-1]):
        return True
    is_alone = len(chosen) == 1 < len(clause.chunks)
    if is_alone and clause.verb and (clause.verb[0] in PLACING or clause.chunks[1][0].lower == "as"):
        return True
    return any(_needs_more(clause.chunks[at], clause.rest[-1]) for at in chosen if at + 1 not in chosen)


def _needs_more(chunk: Sequence[Token], last: Token) -> bool:
    head = chunk[-1]
    if head.lower not in WEAK or head is last or head.ends not in {"", ","}:
        return False
    things = sum(is_thing(token.lower) and token.lower not in FILLERS for token in chunk)
    return things == 1 and not _is_owned(chunk)


def _is_owned(chunk: Sequence[Token]) -> bool:
    return any(token.lower in {"its", "their"} for token in chunk)


def _is_first_of_list(clause: Clause, chosen: Sequence[int]) -> bool:
    """Whether more list items follow: "a project, section, task or comment"."""
    last = clause.chunks[chosen[-1]][-1]
    said = sum(map(len, clause.chunks))
    behind = clause.rest[said : said + 3]
    return last.ends == "," and any(token.ends == "," or token.lower in CONJUNCTIONS for token in behind)


def _is_restricted(clause: Clause) -> bool:
    """Whether the clause has an exclusion that does not fit: "without deleting it"."""
    end = next((at for at, token in enumerate(clause.rest, start=1) if token.ends), len(clause.rest))
    return any(token.lower in _RESTRICTS for token in clause.rest[:end])


def _shortened(verb: Sequence[str], chunks: Sequence[Sequence[Token]]) -> tuple[str, ...]:
    """The words of a phrase, with as many articles as fit; empty if it has too many words."""
    said = [(token, at) for at, chunk in enumerate(chunks) for token in chunk if token.lower not in FILLERS]
    if len(said) > 1 and said[0][0].lower == "the" and _is_plural(chunks[0][-1].lower):
        said = said[1:]
    tokens = [token for token, _ in said]
    soft = [_is_soft(token.lower, verb) if at == 0 else token.lower in _OWNING for token, at in said]
    room = MOST_WORDS - len(verb) - soft.count(False)
    if room < 0 or not tokens:
        return ()
    kept = [not is_soft for is_soft in soft]
    for only_articles in (True, False):
        for at in reversed(range(len(tokens))):
            if room and not kept[at] and (tokens[at].lower in _COUNTING) is only_articles:
                kept[at] = True
                room -= 1
    return (*verb, *_agreeing(tokens, kept))


def _is_plural(word: str) -> bool:
    return word.endswith("s") and not word.endswith(("ss", "us", "is"))


def _is_soft(word: str, verb: Sequence[str]) -> bool:
    if word in {"all", "new"}:
        # Without these words, "delete all cards" would mean fewer cards, and "get new cards" more.
        return (word == "all") is (not verb or verb[-1] in READING)
    return word in SOFT


def _agreeing(tokens: Sequence[Token], kept: Sequence[bool]) -> Iterator[str]:
    """The kept words, with articles adapted: "an existing card" without "existing" is "a card"."""
    words = [token.text for token, is_kept in zip(tokens, kept, strict=True) if is_kept]
    for at, word in enumerate(words):
        yield article(words[at + 1]) if word.lower() in {"a", "an"} and at + 1 < len(words) else word


def _cut(clause: Clause) -> Iterator[Phrase]:
    """A long object cut to its last words, which name the thing itself."""
    tokens = [token for token in clause.chunks[0] if token.lower not in FILLERS and token.lower not in SOFT]
    room = MOST_WORDS - len(clause.verb)
    if tokens and tokens[0].lower not in PREPOSITIONS and room > 1:
        yield Phrase((*clause.verb, *(token.text for token in tokens[-room:])), is_whole=False)


LONGEST_NAME = 200
"""Characters of a name that are examined."""

_FIRST_IN_NAMES = frozenset(
    "copy download export import list open query run search set show start stop test update upload view".split()
)
_OF_NAME = regex(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[^\W\d_A-Z]+\d*|[A-Z]+\d*|\d+[a-z]?(?![a-z])|\d+")


def name_words(name: str) -> tuple[str, ...]:
    """The words of a name in snake, camel or kebab case, in lower case."""
    found = [word.lower() for word in _OF_NAME.findall(name[:LONGEST_NAME])]
    return tuple(found[:-1] if len(found) > 2 and found[-1] == "tool" else found)


def from_name(words: Sequence[str], spelling: Mapping[str, str], namespaces: frozenset[str]) -> Iterator[Phrase]:
    """Phrases from a tool's name: its verb first, without and with the words before the verb."""
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
        # With several words before the verb, the server's part is unknown.
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
    """The position of a name's verb: `list_boards`, `netbox_get_object`, `workflows-list`."""
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
