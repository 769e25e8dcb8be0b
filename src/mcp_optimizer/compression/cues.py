"""The words by which a sentence is recognised as a rule for callers. Pure.

Single words are looked up in sets; only phrases need expressions. Those are alternations of short literals without
nested repetition, so that any text is read in linear time.
"""

from __future__ import annotations

import re
from collections.abc import Collection

BINDING = 4
"""A call that breaks such a rule is refused, does damage, or does something else than meant."""

TELLING = 3
"""Without such a rule a caller guesses: what is used by default, how much is allowed, in which form."""

HINTING = 2
"""Helps, but a call without it usually works."""

_WORD = re.compile(r"[^\W\d_]+(?:'[a-z])?")

_BINDING_WORDS = frozenset(
    "must mandatory require requires prerequisite prerequisites never cannot can't don't mustn't shouldn't won't "
    "doesn't isn't aren't unsupported invalid only exclusively solely always exactly exclusive refuse refused refuses "
    "reject rejected rejects ignore ignored ignores fail fails throw throws blocked denied exclude excluded excludes "
    "disabled clamped truncated overwrite overwrites overwritten irreversible irreversibly irrevocable permanent permanently undone undo destructive "
    "precedence override overrides overridden".split()
)
_BINDING_PHRASE = re.compile(
    r"\brequired (?:if|when|for|in|to|unless|by|with)\b|\bneeds? (?:to be|the|an?)\b|\b(?:can|do|may|must|should|will|does|is|are)"
    r" not\b|\bnot (?:an?|the|valid|supported|allowed|available|just|both)\b|\bno longer\b|\bat (?:least|most) one\b|\b(?:up to|at most|max(?:imum)?(?: of)?:?) \d"
    r"|必须|必須|只能|仅限|仅支持|只支持|不能|不可|不得|不支持|禁止|必填|需要先|のみ|필수",
    re.I,
)
_TELLING_WORDS = frozenset(
    "default defaults defaulting omit omits omitted omitting unset unless otherwise none null max maximum min minimum "
    "limited cap caps capped range ranges format formats formatted yyyy utc epoch unix json glob regex regexp csv "
    "markdown html yaml prefix prefixed wildcard wildcards placeholder placeholders relative absolute exact uppercase "
    "lowercase notation syntax argument arguments allowed accepts accepted accept either obtain obtained constraints "
    "merge merges merged replace replaces replaced preserved unchanged environment cost costs credits charged charges billed "
    "instead sensitive insensitive separated quoted escaped encoded".split()
)
_TELLING_PHRASE = re.compile(
    r"\b(?:if|when|where) (?:it is |this is |you |the )?(?:not|no|empty|absent|blank|missing|unspecified|true|false|set"
    r"|provided|specified)\b|\bnot (?:provided|specified|set|given|supplied|passed)\b|\b(?:left|leave)(?: it)? (?:blank|empty)\b"
    r"|\bempty string|\bwithout (?:an?|the|it|this)\b|\bat (?:most|least)\b|\bno more than\b|\bup to \d|\blimits? (?:of|is|to)\b"
    r"|\bbetween \d|\brate limit|\biso[ -]?8601|\brfc ?\d|\bbase64|\bregular expression|\b(?:zero|0|1)[ -]based"
    r"|\b\d+(?:\.\d+)?[ -]?(?:seconds?|milliseconds?|minutes?|ms|hours?|days?|bytes|[kmg]b|km|characters|chars|items|results|records"
    r"|requests|ids|per)\b|\b(?:seconds?|milliseconds?|minutes?|ms|hours?|bytes|pixels?|px|percent|cents|degrees)\)"
    r"|\bvalid (?:\w+ )?(?:values?|are|types?|options?)|\b(?:values?|scopes?|options?|optional|required|patterns|ids):|\bone of\b"
    r"|\bchoose from\b|\bas the value\b|\bno (?:leading|trailing|spaces)\b|\balready exists?\b|\btakes? effect\b"
    r"|\b(?:before (?:calling|using)|first (?:call|use|run)|call(?:ed)? first|returned (?:by|from)|from (?:an? |the )?(?:previous|prior|last))\b"
    r"|\bfirst\b(?=[ .]*(?:$|to |before ))|\bbefore \w+ing\b|\brather than\b|\b(?:result in|cause|raise)s? an? error\b|\b(?:true|false) ?(?:=|to|for|\(default)|\bset (?:to|this)\b|\bshould (?:be|contain|include|have|either)\b"
    r"|\b(?:from|via|with|by|call|see|run|using):? (?:the )?[`'\"]?[a-z]+[a-z0-9]*[_-][a-z0-9_-]+"
    r"|['\"][^'\" ]{0,30}[*%$][^'\" ]{0,30}['\"]"
    r"|默认|預設|默認|省略|留空|为空|最大|最多|最小|最少|至少|不超过|格式|范围|範圍|取值|可选值|单位|單位|区分|區分|デフォルト|기본값|по умолчанию"
    r"|por defecto|padrão|par défaut|standardmäßig",
    re.I,
)
_CONDITION = re.compile(
    r"^\W{0,3}(?:if|when|unless|with|without|each|every|any|both|no|to|for(?! example| more| information| details)) ",
    re.I,
)
_IMPERATIVE = re.compile(
    r"^\W{0,3}(?:pass|provide|set|specify|include|start|add|choose|select|enter|keep|get|call|put|send|give|use(?! this| it| when| cases?)) ",
    re.I,
)
_QUOTED = re.compile(r"'[^' ]{1,40}'|\"[^\" ]{1,40}\"|`[^`]{1,60}`")
_NO_RULE = re.compile(
    r"^\W{0,4}(?:useful|essential|helpful|helps|ideal|see|for more|this (?:helps|reduces|is|allows)|reduces|improves|learn more|defines how|determines|note)\b",
    re.I,
)
_ABOUT_RESULTS = re.compile(
    r"^\W{0,4}(?:(?:it|this tool|also|optionally) )?(?:only )?(?:returns?|the (?:response|result|output)|output|response|shows?|displays|provides|includes|lists?|handles|supports"
    r"|retrieves?|fetches|gets?)\b",
    re.I,
)
_HARMLESS = re.compile(
    r"^\W{0,4}(?:(?:this|it)(?: tool| operation)? )?(?:is )?(?:a )?read[ -]only|\b(?:does|do|will) not (?:modify|mutate|change|alter|write)\b|\bmay not return\b|\breturned as errors?\b|\bas documented\b|\bby the schema\b|\bsee (?:the )?schema\b",
    re.I,
)
_ABOUT_READING = re.compile(
    r"^\((?:e\.g|for example)|\bonly returned\b|\bto retrieve\b|\bnot populated\b|\bsee (?:below|above|also)\b|\bif (?:needed|necessary)\b|\bprefer\b",
    re.I,
)
_BOUNDING = re.compile(
    r"\b(?:when|if) (?:no|not|omitted|\w+ (?:is|are) (?:omitted|not|empty))\b|\bby default\b|\bwithout\b|\bat most\b|\bup to \d|\bmax|\blimited\b|\bcapped\b|\bunless\b|\bonly\b|\btruncated\b|\bpartial\b",
    re.I,
)
_ADVERTISING = re.compile(
    r"^\W{0,4}(?:usage: )?(?:use (?:this|it)\b(?! param| value| field| option| only)|use (?:when|for|cases?)\b|best for|useful|ideal|perfect|great for|suitable"
    r"|helpful|essential|efficient|this (?:tool|is|operation|endpoint|function|method|helps)|when (?:not )?to use|allows|enables|read[ -]only)",
    re.I,
)
_OTHER_TOOLS = re.compile(
    r"\b(?:don't|do not|never) use (?:this|it|when|for)\b|\binstead\b(?! of)|\bprefer\b|\bnot for\b|\b(?:for|to|if) [^.]{1,80}, (?:use|call|see) ",
    re.I,
)
_FIRST = re.compile(r"\bfirst\b|\bbefore\b|\bmust\b|\bfail|\berror|\brefuse|\breject", re.I)
_READ_ONLY = re.compile(r"\b(?:read|write)[ -]only\b", re.I)
_IDENTIFIER = re.compile(r"\b[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b|\b[a-z]\w*=\w|[{$%]")


def of_a_note(sentence: str) -> int:
    """How much a caller needs a sentence of a parameter's note: 0 for not at all, up to BINDING."""
    if _ABOUT_READING.search(sentence):
        return 0
    found = plainly(sentence)
    if found < TELLING and (_CONDITION.match(sentence) or _IDENTIFIER.search(sentence) or _IMPERATIVE.match(sentence)):
        return TELLING
    return found or (0 if _NO_RULE.match(sentence) else HINTING)


def of_a_description(sentence: str, parameters: Collection[str]) -> int:
    """How much a caller needs a sentence of a tool's description.

    What the tool returns, what it is good for and which tool is better for something else is not about the call.
    """
    found = plainly(_READ_ONLY.sub("", sentence))
    if found < TELLING and (
        sentence.startswith("If ")
        or _IMPERATIVE.match(sentence)
        or len(_QUOTED.findall(sentence)) > 1
        or names_one(sentence, parameters)
    ):
        found = TELLING
    if found < TELLING:
        return found
    if _HARMLESS.search(sentence):
        return HINTING
    if _ABOUT_RESULTS.match(sentence):
        is_about_call = _BOUNDING.search(sentence) or names_one(sentence, parameters)
        return TELLING if is_about_call else 0
    if _OTHER_TOOLS.search(sentence) and not _FIRST.search(sentence):
        return HINTING
    return found - 1 if _ADVERTISING.match(sentence) else found


def names_one(sentence: str, parameters: Collection[str]) -> bool:
    """Whether a sentence names one of the parameters, and not just uses the same word."""
    return any(name in sentence and _is_named(name, sentence) for name in parameters)


def _is_named(name: str, sentence: str) -> bool:
    if "_" in name or name != name.lower():
        return True
    return any(f"{mark}{name}{mark}" in sentence for mark in "`'\"") or f"{name}=" in sentence


def plainly(sentence: str) -> int:
    """How much a caller needs a sentence, by its words alone."""
    words = {word.lower() for word in _WORD.findall(sentence)}
    if not _BINDING_WORDS.isdisjoint(words) or _BINDING_PHRASE.search(sentence):
        return BINDING
    if not _TELLING_WORDS.isdisjoint(words) or _TELLING_PHRASE.search(sentence):
        return TELLING
    return 0


def first_cue(sentence: str) -> int:
    """Where the first word stands that makes the sentence a rule; 0 if there is none."""
    places = [found.start() for found in (_BINDING_PHRASE.search(sentence), _TELLING_PHRASE.search(sentence)) if found]
    cues = _BINDING_WORDS | _TELLING_WORDS
    places += [word.start() for word in _WORD.finditer(sentence) if word.group().lower() in cues][:1]
    return min(places, default=0)
