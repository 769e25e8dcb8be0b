"""The words that mark a sentence as a rule for callers. Pure.

Single words are looked up in sets; only phrases need regular expressions. Those are alternations of short literals
without nested repetition, so any text is searched in linear time.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from mcp_optimizer.runtime.patterns import regex

BINDING = 4
"""A call that breaks the rule is refused, does damage, or does something unintended."""

TELLING = 3
"""Without the rule a caller guesses the default, the limit or the format."""

HINTING = 2
"""The rule helps, but a call without it usually works."""

_WORD = regex(r"[^\W\d_]+(?:'[a-z])?")

_BINDING_WORDS = frozenset(
    "must mandatory require requires prerequisite prerequisites never cannot can't don't mustn't shouldn't won't "
    "doesn't isn't aren't unsupported invalid only exclusively solely always exactly exclusive refuse refused refuses "
    "reject rejected rejects ignore ignored ignores fail fails throw throws blocked denied exclude excluded excludes "
    "disabled clamped truncated overwrite overwrites overwritten irreversible irreversibly irrevocable permanent "
    "permanently undone undo destructive precedence override overrides overridden".split()
)
_TELLING_WORDS = frozenset(
    "default defaults defaulting omit omits omitted omitting unset unless otherwise none null max maximum min minimum "
    "limited cap caps capped range ranges format formats formatted yyyy utc epoch unix json glob regex regexp csv "
    "markdown html yaml prefix prefixed wildcard wildcards placeholder placeholders relative absolute exact uppercase "
    "lowercase notation syntax argument arguments allowed accepts accepted accept either obtain obtained constraints "
    "merge merges merged replace replaces replaced preserved unchanged environment cost costs credits charged charges "
    "billed instead sensitive insensitive separated quoted escaped encoded".split()
)
_CUES = _BINDING_WORDS | _TELLING_WORDS


def _any(*phrases: str) -> re.Pattern[str]:
    return regex("|".join(phrases), re.I)


_GIVEN = "(?:provided|specified|set|given|supplied|passed)"
_TOOL = r"[`'\"]?[a-z][a-z0-9]{0,40}_[a-z0-9_]{1,60}"
_UNIT = (
    "(?:seconds?|milliseconds?|minutes?|ms|hours?|days?|bytes|[kmg]b|km|characters|chars|items|results|records|requests"
    "|ids|per)"
)
_BINDING_PHRASE = _any(
    r"\brequired (?:if|when|for|in|to|unless|by|with)\b",
    r"\bneeds? (?:to be|the|an?)\b",
    r"\b(?:can|do|may|must|should|will|does|is|are) not\b",
    r"\bnot (?:an?|the|valid|supported|allowed|available|just|both)\b",
    r"\bno longer\b",
    r"\bat (?:least|most) one\b",
    r"\b(?:up to|at most|max(?:imum)?(?: of)?:?) \d",
    "必须|必須|只能|仅限|仅支持|只支持|不能|不可|不得|不支持|禁止|必填|需要先|のみ|필수",
)
_TELLING_PHRASE = _any(
    r"\b(?:if|when|where) (?:it is |this is |you |the )?(?:not|no|empty|absent|blank|missing|unspecified|true|false)\b",
    rf"\b(?:if|when|where|not) (?:it is |this is |you |the )?{_GIVEN}\b",
    r"\b(?:left|leave)(?: it)? (?:blank|empty)\b|\bempty string|\bwithout (?:an?|the|it|this)\b",
    r"\bat (?:most|least)\b|\bno more than\b|\blimits? (?:of|is|to)\b|\bbetween \d|\brate limit",
    r"\biso[ -]?8601|\brfc ?\d|\bbase64|\bregular expression|\b(?:zero|0|1)[ -]based",
    rf"\b\d+(?:\.\d+)?[ -]?{_UNIT}\b",
    r"\b(?:seconds?|milliseconds?|minutes?|ms|hours?|bytes|pixels?|px|percent|cents|degrees)\)",
    r"\bin (?:seconds|milliseconds|minutes|hours|bytes|pixels|met(?:re|er)s|cents|degrees|percent)\b",
    r"\bvalid (?:\w+ )?(?:values?|are|types?|options?)|\bone of\b|\bchoose from\b|\bas the value\b",
    r"\b(?:values?|scopes?|options?|optional|required|patterns|ids):",
    r"\bno (?:leading|trailing|spaces)\b|\balready exists?\b|\btakes? effect\b|\brather than\b",
    r"\bfirst (?:call|use|run)\b|\bfirst\b(?=[ .]*(?:$|to |before ))|\bbefore \w+ing\b",
    r"\breturned (?:by|from)\b|\bfrom (?:an? |the )?(?:previous|prior|last)\b",
    r"\b(?:result in|cause|raise)s? an? error\b",
    r"\b(?:true|false) ?(?:=|to|for|\(default)|\bset (?:to|this)\b|\bshould (?:be|contain|include|have|either)\b",
    r"\b(?:from|via|with|by|call|see|run|using):? (?:the )?[`'\"]?[a-z][a-z0-9]{0,40}[_-][a-z0-9_-]",
    r"['\"][^'\" ]{0,30}[*%$][^'\" ]{0,30}['\"]",
    "默认|預設|默認|省略|留空|为空|最大|最多|最小|最少|至少|不超过|格式|范围|範圍|取值|可选值|单位|單位|区分|區分",
    "デフォルト|기본값|по умолчанию|por defecto|padrão|par défaut|standardmäßig",
)
_CONDITION = _any(
    r"^\W{0,3}(?:if|when|unless|with|without|each|every|any|both|no|to) ",
    r"^\W{0,3}for (?!example|more|information|details)",
)
_STATES_DEFAULT = _any(r"^\W{0,3}(?:defaults? (?:to|is)|by default|(?:if|when) (?:it is )?omitted|omit to)\b")
_IMPERATIVE = _any(
    r"^\W{0,3}(?:pass|provide|set|specify|include|start|add|choose|select|enter|keep|get|call|put|send|give) ",
    r"^\W{0,3}use (?!this|it|when|cases?)",
)
_QUOTED = regex(r"'[^' ]{1,40}'|\"[^\" ]{1,40}\"|`[^`]{1,60}`")
_IDENTIFIER = regex(r"\b[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b|\b[a-z]\w*=\w|[{$%]")

_NO_RULE = _any(
    r"^\W{0,4}(?:useful|essential|helpful|helps|ideal|see|for more|reduces|improves|learn more|defines how)\b",
    r"^\W{0,4}(?:determines|note|this (?:helps|reduces|is|allows))\b",
)
_ABOUT_OTHERS = _any(
    rf"\bcan (?:also )?be \w+(?: \w+){{0,3}} (?:with|by|using|in) {_TOOL}|\blater (?:with|by|using) {_TOOL}",
    rf"\b(?:is|are) (?:listed|shown|reported|counted|summed)(?: \w+){{0,3}} (?:by|in|with) {_TOOL}",
    rf"^\W{{0,3}}(?:used|read|reported|counted|shown) by {_TOOL}",
)
"""How another tool later uses a value."""

_ABOUT_READING = _any(
    r"^\((?:e\.g|for example)|\bonly returned\b|\bto retrieve\b|\bnot populated\b|\bsee (?:below|above|also)\b",
    r"\bif (?:needed|necessary)\b|\bprefer\b",
)
_HARMLESS = _any(
    r"^\W{0,4}(?:(?:this|it)(?: tool| operation)? )?(?:is )?(?:a )?read[ -]only",
    r"\b(?:does|do|will) not (?:modify|mutate|change|alter|write)\b|\bmay not return\b|\breturned as errors?\b",
    r"\bas documented\b|\bby the schema\b|\bsee (?:the )?schema\b",
)
_ABOUT_RESULTS = _any(
    r"^\W{0,4}(?:(?:it|this tool|also|optionally) )?(?:only )?(?:returns?|output|response|shows?|displays|provides)\b",
    r"^\W{0,4}(?:(?:it|this tool|also|optionally) )?(?:only )?(?:includes|lists?|handles|supports|retrieves?)\b",
    r"^\W{0,4}(?:(?:it|this tool|also|optionally) )?(?:only )?(?:fetches|gets?|the (?:response|result|output))\b",
)
_BOUNDING = _any(
    r"\b(?:when|if) (?:no|not|omitted|\w+ (?:is|are) (?:omitted|not|empty))\b|\bby default\b|\bwithout\b|\bunless\b",
    r"\bat most\b|\bup to \d|\bmax|\blimited\b|\bcapped\b|\bonly\b|\btruncated\b|\bpartial\b",
)
_ADVERTISING = _any(
    r"^\W{0,4}(?:usage: )?use (?:this|it)\b(?! param| value| field| option| only)|^\W{0,4}use (?:when|for|cases?)\b",
    r"^\W{0,4}(?:this (?:tool|is|operation|endpoint|function|method|helps)|when (?:not )?to use|read[ -]only)",
)
_PRAISING = _any(
    r"^\W{0,4}(?:best for|useful|ideal|perfect|great for|suitable|helpful|essential|efficient|allows|enables)",
)
_OTHER_TOOLS = _any(
    r"\b(?:don't|do not|never) use (?:this|it|when|for)\b|\binstead\b(?! of)|\bprefer\b|\bnot for\b",
    r"\b(?:for|to|if) [^.]{1,80}, (?:use|call|see) ",
)
_BEFORE_THE_CALL = regex(r"\bfirst\b|\bbefore\b|\bmust\b|\bfail|\berror|\brefuse|\breject", re.I)
_READ_ONLY = regex(r"\b(?:read|write)[ -]only\b", re.I)


def of_a_note(sentence: str) -> int:
    """How much a caller needs a sentence of a parameter's note: from 0 (not at all) to BINDING."""
    if _ABOUT_READING.search(sentence) or (
        _ABOUT_OTHERS.search(sentence) and _BINDING_WORDS.isdisjoint(_said(sentence))
    ):
        return 0
    if found := plainly(sentence):
        # Checked before other rules: the effect of omitting the parameter concerns most calls.
        return BINDING + 1 if _STATES_DEFAULT.match(sentence) else found
    if _CONDITION.match(sentence) or _IDENTIFIER.search(sentence) or _IMPERATIVE.match(sentence):
        return TELLING
    return 0 if _NO_RULE.match(sentence) else HINTING


def of_a_description(sentence: str, parameters: Collection[str]) -> int:
    """How much a caller needs a sentence of a tool's description.

    Statements about results, typical uses or better tools for other tasks do not concern the call.
    """
    found = plainly(_READ_ONLY.sub("", sentence))
    if not found and (
        sentence.startswith("If ")
        or _IMPERATIVE.match(sentence)
        or len(_QUOTED.findall(sentence)) > 1
        or _names_one(sentence, parameters)
    ):
        found = TELLING
    if not found:
        return 0
    if _HARMLESS.search(sentence) or _PRAISING.match(sentence):
        return HINTING
    if _ABOUT_RESULTS.match(sentence):
        return TELLING if _BOUNDING.search(sentence) or _names_one(sentence, parameters) else 0
    if _OTHER_TOOLS.search(sentence) and not _BEFORE_THE_CALL.search(sentence):
        return HINTING
    return found - 1 if _ADVERTISING.match(sentence) else found


def plainly(sentence: str) -> int:
    """How much a caller needs a sentence, by its words alone: BINDING, TELLING or 0."""
    words = _said(sentence)
    if not _BINDING_WORDS.isdisjoint(words) or _BINDING_PHRASE.search(sentence):
        return BINDING
    return TELLING if not _TELLING_WORDS.isdisjoint(words) or _TELLING_PHRASE.search(sentence) else 0


def _said(sentence: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(sentence)}


def first_cue(sentence: str) -> int:
    """The position of the first word that makes the sentence a rule; 0 if there is none."""
    phrases = (_BINDING_PHRASE.search(sentence), _TELLING_PHRASE.search(sentence))
    places = [phrase.start() for phrase in phrases if phrase]
    places += [word.start() for word in _WORD.finditer(sentence) if word.group().lower() in _CUES][:1]
    return min(places, default=0)


def _names_one(sentence: str, parameters: Collection[str]) -> bool:
    """Whether a sentence names one of the parameters rather than just using the same word."""
    return any(name in sentence and _is_named(name, sentence) for name in parameters)


def _is_named(name: str, sentence: str) -> bool:
    if "_" in name or name != name.lower():
        return True
    return any(f"{mark}{name}{mark}" in sentence for mark in "`'\"") or f"{name}=" in sentence
