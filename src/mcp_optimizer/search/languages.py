"""Turns requests in six other languages into English ones, word by word, before the search. Called by the engine.

The encoder and most tools know only English. `lexicon.txt` has the words that requests to tools are made of; names,
values and unknown words stay as they are. An English request costs one look-up for each of its words. Knows no tools.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache, lru_cache
from importlib import resources
from typing import Final

import Stemmer

from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.search.actions import CLASSES
from mcp_optimizer.search.typing_errors import is_usual
from mcp_optimizer.search.words import STOP_WORDS, terms

_INFLECTED: Final = ("german", "spanish", "french", "portuguese")
"""Languages written with spaces, as their stemmers are called, in the order of the lexicon's columns."""

_UNSPACED: Final = ("japanese", "chinese")

_LONGEST_PHRASE: Final = 5
_LEAST_HEAD: Final = 4
"""Letters of each part of a German compound."""

_SURE: Final = 2
"""Words of a language from which on a request is in it; one is enough if the request has hardly any others."""

_FEW_WORDS: Final = 3

_MOST_ENGLISH: Final = 3
"""English words from which on ideographs in a request are values, such as a text to type."""

_ALSO_ENGLISH: Final = frozenset("del plus em ha ai".split())
"""Short words of other languages that English requests have too; they say nothing about a request's language."""

_SILENT: Final = frozenset("¿¡。、，？！")

_MOST_WORDS: Final = 200
"""Words of a longer request are not looked up beyond this number."""

_QUOTED: Final = r"\"[^\"]*\"|“[^”]*”|„[^“”]*[“”]|«[^»]*»|「[^」]*」|(?<!\w)'[^']*'(?!\w)"
_LATIN_WORD = regex(r"[A-Za-z]+")
_KANA = regex(r"[\u3040-\u30ff]")
_IDEOGRAPH = regex(r"[\u3040-\u30ff\u3400-\u9fff]")
_IDEOGRAPHS = regex(r"[\u3040-\u30ff\u30fc\u3400-\u9fff]+")
_RUN = regex(rf"{_QUOTED}|{_IDEOGRAPHS.pattern}|[^\u3040-\u30ff\u3400-\u9fff\"“„«「]+|.", re.S)
_HIRAGANA = regex(r"[\u3040-\u309f]+")
_TOKEN = regex(rf"(?P<kept>{_QUOTED}|\S*[\d@#/\\_]\S*|\w+(?:[.:]\w+)+)|(?P<word>[^\W\d_]+)|(?!(?<=\w)[-'’](?=\w))\S")
"""What stays as it is, words, and marks; the marks within "rendez-vous" and "d'écran" only separate words."""


class WordKind(Enum):
    """What a row of the lexicon is for. Actions and questions lead an English request."""

    LEFT_OUT = "left out"
    QUESTION = "questions"
    ACTION = "actions"
    WORD = "words"


@dataclass(frozen=True, slots=True)
class Meaning:
    english: str
    kind: WordKind


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece of the English request. `kind` is None for what stays as it was."""

    text: str
    kind: WordKind | None = None


class _Stemmers(threading.local):
    """One of each language per thread: a stemmer stores the word it works on."""

    def __init__(self) -> None:
        self.of = {name: Stemmer.Stemmer(name, maxCacheSize=0) for name in _INFLECTED}


_stemmers = _Stemmers()


def _plain(word: str) -> str:
    """Lower case without accents, because many people type none."""
    lower = word.lower().replace("ß", "ss")
    if lower.isascii():
        return lower
    return "".join(mark for mark in unicodedata.normalize("NFD", lower) if unicodedata.category(mark) != "Mn")


@lru_cache(maxsize=20_000)
def _stem(language: str, word: str) -> str:
    """The stem of a plain word."""
    return str(_stemmers.of[language].stemWord(word))


@dataclass(frozen=True)
class Inflected:
    """The words of one language that is written with spaces."""

    name: str
    exact: Mapping[tuple[str, ...], Meaning]
    """By plain words; a phrase of one word is a word."""
    phrases: Mapping[tuple[str, ...], Meaning]
    """By stems."""
    left_out: frozenset[str]
    """Plain words that say nothing about tools. Not stemmed: they are too short."""
    separable: Mapping[tuple[str, str], Meaning]
    """German verbs by stem and particle."""
    verbs: frozenset[str]
    """Their stems."""
    particles: frozenset[str]

    def meaning(self, *words: str, is_name: bool = False) -> Meaning | None:
        """The meaning of a plain word or phrase. What looks like a name must be spelt like the word: "Marte" is not
        "martes"."""
        if len(words) == 1 and words[0] in self.left_out:
            return Meaning("", WordKind.LEFT_OUT)
        found = self.exact.get(words)
        if found is not None or is_name:
            return found
        return self.phrases.get(tuple(_stem(self.name, word) for word in words))

    def may_be_name(self, text: str) -> bool:
        """Whether a word within a request looks like a name; in German, all nouns do."""
        return self.name != "german" and text[0].isupper()

    def compound(self, word: str) -> str | None:
        """The parts of a German compound in English, if its last part is known: "Rechnungsordner", "Logdatei"."""
        if self.name != "german":
            return None
        for split in range(_LEAST_HEAD - 1, len(word) - _LEAST_HEAD + 1):
            head = self.meaning(word[split:])
            if head is not None and head.kind is WordKind.WORD:
                first = next(filter(None, (self.meaning(word[: split - cut]) for cut in (0, 1))), None)
                return f"{first.english if first else word[:split]} {head.english}".strip()
        return None


@dataclass(frozen=True)
class Unspaced:
    """The words of one language that is written without spaces."""

    name: str
    words: Mapping[str, Meaning]
    longest: int

    def pieces(self, text: str) -> list[_Piece]:
        """The longest known words from left to right. Unknown hiragana is grammar and left out."""
        found: list[_Piece] = []
        at, unknown = 0, ""
        while at < len(text):
            tried = (text[at:end] for end in range(min(at + self.longest, len(text)), at, -1))
            word = next((one for one in tried if one in self.words), "")
            if not word:
                unknown += "" if self.name == "japanese" and _HIRAGANA.match(text[at]) else text[at]
                at += 1
                continue
            if unknown:
                found.append(_Piece(unknown))
                unknown = ""
            meaning = self.words[word]
            found.append(_Piece(meaning.english, meaning.kind))
            at += len(word)
        return [*found, _Piece(unknown)] if unknown else found


@dataclass(frozen=True)
class Lexicon:
    inflected: tuple[Inflected, ...]
    unspaced: tuple[Unspaced, ...]


@cache
def lexicon() -> Lexicon:
    """The words of `lexicon.txt`."""
    stored = (resources.files("mcp_optimizer") / "search" / "lexicon.txt").read_text(encoding="utf-8")
    columns: list[list[tuple[str, Meaning]]] = [[] for _ in (*_INFLECTED, *_UNSPACED)]
    kind = WordKind.LEFT_OUT
    for line in stored.splitlines():
        if line.startswith("["):
            kind = WordKind(line.strip("[]"))
        elif line and not line.startswith("#"):
            english, _, others = line.partition("=")
            meaning = Meaning(english.strip().replace("_", " "), kind)
            for column, words in zip(columns, others.split("|"), strict=True):
                column += [(word, meaning) for word in words.split()]
    count = len(_INFLECTED)
    inflected = tuple(_inflected(name, rows) for name, rows in zip(_INFLECTED, columns[:count], strict=True))
    return Lexicon(inflected, tuple(_unspaced(n, rows) for n, rows in zip(_UNSPACED, columns[count:], strict=True)))


def _inflected(name: str, rows: Iterable[tuple[str, Meaning]]) -> Inflected:
    exact: dict[tuple[str, ...], Meaning] = {}
    phrases: dict[tuple[str, ...], Meaning] = {}
    separable: dict[tuple[str, str], Meaning] = {}
    left_out: set[str] = set()
    for word, meaning in rows:
        for spelt in _spellings(name, word):
            if "+" in spelt:
                verb, _, particle = spelt.partition("+")
                separable.setdefault((_stem(name, verb), particle), meaning)
            elif meaning.kind is WordKind.LEFT_OUT and "_" not in spelt:
                left_out.add(spelt)
            else:
                parts = tuple(spelt.split("_"))
                exact.setdefault(parts, meaning)
                phrases.setdefault(tuple(_stem(name, part) for part in parts), meaning)
    verbs, particles = (frozenset(part) for part in zip(*separable, strict=True)) if separable else ((), ())
    return Inflected(name, exact, phrases, frozenset(left_out), separable, frozenset(verbs), frozenset(particles))


def _spellings(name: str, word: str) -> set[str]:
    """Without accents; a German umlaut also as two letters ("loesche")."""
    written = {_plain(word)}
    if name == "german":
        written.add(_plain(word.replace("ä", "ae").replace("ö", "oe").replace("ü", "ue")))
    return written


def _unspaced(name: str, rows: Iterable[tuple[str, Meaning]]) -> Unspaced:
    words: dict[str, Meaning] = {}
    for word, meaning in rows:
        words.setdefault(word.replace("_", ""), meaning)
    return Unspaced(name, words, max(map(len, words)))


@dataclass(frozen=True, slots=True)
class Translated:
    """A request in English, and the words of the other language that were translated."""

    english: str
    words: tuple[str, ...]

    def read(self, request: str, is_known: Callable[[str], bool]) -> str:
        """The text to search with: tools that speak the request's own language are found by its own words."""
        shared = frozenset(terms(self.english))
        own = [term for word in self.words for term in terms(word) if term not in shared]
        speaks_it = bool(own) and 2 * sum(map(is_known, own)) >= len(own)
        return f"{self.english} {request}" if speaks_it else self.english


@lru_cache(maxsize=1_000)
def translated(request: str) -> Translated | None:
    """The request in English; None if it is English or in a language that is not known."""
    if not request.isascii() and _IDEOGRAPH.search(request):
        return _from_unspaced(request)
    if (language := _language(request)) is None:
        return None
    pieces, words = _from_inflected(request, language)
    return Translated(_ordered(pieces, is_verb_last=language.name == "german"), words)


def in_english(request: str) -> str:
    """The request in English, as far as its language is known."""
    found = translated(request)
    return request if found is None else found.english


def _language(request: str) -> Inflected | None:
    """The language with most of a request's words, if there are more of them than English ones."""
    tokens = [found for found in _TOKEN.finditer(request) if found.lastgroup == "word"][:_MOST_WORDS]
    # A word that begins with a capital is mostly a name ("Los Angeles"), except in German and at the beginning.
    marks = [_marks(found.group(), found.start() == 0) for found in tokens]
    if not any(marks):
        return None
    best, most = None, 0
    for number, language in enumerate(lexicon().inflected):
        own = sum((mark >> 2 * number) & 3 > 0 for mark in marks)
        if own <= most:
            continue
        others = (one.group() for mark, one in zip(marks, tokens, strict=True) if not (mark >> 2 * number) & 3)
        english = sum(_is_plain_english(word) and _plain(word) not in language.left_out for word in others)
        says_more = any((mark >> 2 * number) & 3 == _CONTENT for mark in marks)
        is_sure = own >= _SURE + (not says_more) and own > english
        if is_sure or (says_more and not english and len(tokens) <= _FEW_WORDS):
            best, most = language, own
    return best


_LEFT_OUT_MARK, _CONTENT = 1, 2


@lru_cache(maxsize=20_000)
def _marks(word: str, is_first: bool) -> int:
    """Which languages a word belongs to, two bits each: left out, or with a meaning. None for an English word."""
    plain, found = _plain(word), 0
    is_ascii_word = plain == word.lower()
    if is_ascii_word and (_is_plain_english(plain) or plain in _ALSO_ENGLISH or len(plain) < 2):
        return 0
    is_common = is_ascii_word and is_usual(plain)
    for number, language in enumerate(lexicon().inflected):
        if plain in language.left_out:
            found |= 0 if word[0].isupper() and not is_first else _LEFT_OUT_MARK << 2 * number
        elif is_common or (not is_first and language.may_be_name(word)):
            continue
        elif language.meaning(plain) is not None or _stem(language.name, plain) in language.verbs:
            found |= _CONTENT << 2 * number
    return found


def _is_plain_english(word: str) -> bool:
    lower = word.lower()
    return lower in STOP_WORDS or lower in CLASSES


def _from_unspaced(request: str) -> Translated | None:
    """The longest known words of each run of ideographs, in the language that the script says."""
    if sum(map(_is_plain_english, _LATIN_WORD.findall(request))) >= _MOST_ENGLISH:
        return None
    language = lexicon().unspaced[0 if _KANA.search(request) else 1]
    pieces: list[_Piece] = []
    words: list[str] = []
    for found in _RUN.finditer(request):
        text = found.group()
        if _IDEOGRAPHS.fullmatch(text):
            pieces += language.pieces(text)
            words.append(text)
        elif text.strip():
            pieces.append(_Piece(text.strip()))
    if not any(piece.kind in (WordKind.ACTION, WordKind.WORD, WordKind.QUESTION) for piece in pieces):
        return None
    return Translated(_ordered(pieces, is_verb_last=language.name == "japanese"), tuple(words))


def _from_inflected(request: str, language: Inflected) -> tuple[list[_Piece], tuple[str, ...]]:
    tokens = [(found.group(), found.lastgroup == "word") for found in _TOKEN.finditer(request)][: 2 * _MOST_WORDS]
    plain = [_plain(text) if is_word else "" for text, is_word in tokens]
    verbs, taken = _separable_verbs(plain, language)
    pieces: list[_Piece] = []
    words: list[str] = []
    at = 0
    while at < len(tokens):
        text, is_word = tokens[at]
        if at in taken:
            at += 1
            continue
        meaning, length = verbs.get(at), 1
        if meaning is None and is_word:
            meaning, length = _longest(plain, at, language, is_name=at > 0 and language.may_be_name(text))
        if meaning is None and is_word and (parts := language.compound(plain[at])) is not None:
            meaning = Meaning(parts, WordKind.WORD)
        if meaning is None:
            pieces.append(_Piece(text))
        else:
            pieces.append(_Piece(meaning.english, meaning.kind))
            words += [one for one, _ in tokens[at : at + length] if meaning.kind is not WordKind.LEFT_OUT]
        at += length
    return pieces, tuple(words)


def _longest(plain: Sequence[str], at: int, language: Inflected, *, is_name: bool) -> tuple[Meaning | None, int]:
    """The longest phrase that begins here."""
    run = plain[at : at + _LONGEST_PHRASE]
    for length in range(len(run), 1, -1):
        if all(run[:length]) and (found := language.meaning(*run[:length])) is not None:
            return found, length
    return language.meaning(plain[at], is_name=is_name), 1


def _separable_verbs(plain: Sequence[str], language: Inflected) -> tuple[dict[int, Meaning], set[int]]:
    """The verbs whose particle stands later in the request ("lege ... an"), and the places of the particles."""
    verbs: dict[int, Meaning] = {}
    taken: set[int] = set()
    particles = [at for at, word in enumerate(plain) if word in language.particles]
    if particles:
        for at, word in enumerate(plain):
            stem = _stem(language.name, word)
            for later in particles:
                if later > at and later not in taken and (found := language.separable.get((stem, plain[later]))):
                    verbs[at] = found
                    taken.add(later)
                    break
    return verbs, taken


def _ordered(pieces: Sequence[_Piece], *, is_verb_last: bool) -> str:
    """The pieces as a request; a question or an action that stands later comes first, as in English."""
    said = [one for one in pieces if one.text and one.text not in _SILENT and one.kind is not WordKind.LEFT_OUT]
    if said and said[0].kind not in (WordKind.QUESTION, WordKind.ACTION):
        questions = [piece for piece in said if piece.kind is WordKind.QUESTION]
        actions = [piece for piece in said if piece.kind is WordKind.ACTION]
        leading = questions[:1] or (actions[-1:] if is_verb_last else actions[:1])
        said = [*leading, *(piece for piece in said if piece not in leading)]
    return " ".join(piece.text for piece in said)
