"""Words by which a sentence is recognised as a rule for callers. Pure data, and one function that weighs a sentence.

Every expression is an alternation of short literals without nested repetition, so that it reads a text in linear time.
"""

from __future__ import annotations

import re

BINDING = 4
"""A call that breaks such a rule is refused, does damage, or does something else than meant."""

TELLING = 3
"""Without such a rule a caller guesses: what is used by default, how much is allowed, in which form."""

HINTING = 2
"""Helps, but a call without it usually works."""


def _any(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives), re.I)


_BINDING = _any(
    r"\b(?:must|mandatory|requires?|required (?:if|when|for|in|to|unless|by|with)|prerequisites?|needs? (?:to be|the|a|an))\b",
    r"\b(?:never|cannot|can't|can not|do not|don't|must not|mustn't|should not|shouldn't|may not|will not|won't)\b",
    r"\b(?:does not|doesn't|is not|isn't|are not|aren't|no longer|not (?:a|an|the|valid|supported|allowed|available|just|both)|unsupported|invalid)\b",
    r"\b(?:only|exclusively|solely|always|exactly|at least one|at most one|mutually exclusive|one of these)\b",
    r"\b(?:refused?|reject(?:ed|s)?|ignored?|ignores|fails?|throws?|blocked|denied|excluded?s?|disabled|clamped|truncated)\b",
    r"\b(?:overwrit\w{1,6}|irreversibl\w{1,2}|permanently|undone|undo|destructive|precedence|overrides?|overridden)\b",
    r"必须|必須|只能|仅限|仅支持|只支持|不能|不可|不得|不支持|禁止|必填|需要先|のみ|필수",
)
_TELLING = _any(
    r"\b(?:defaults?|omit(?:s|ted|ting)?|unset|unless|otherwise|left (?:blank|empty)|leave (?:it )?(?:blank|empty|unset))\b",
    r"\b(?:if|when|where) (?:it is |this is |you |the )?(?:not|no|none|null|omitted|empty|absent|blank|missing|unspecified|true|false|set|provided|specified)\b",
    r"\b(?:not (?:provided|specified|set|given|supplied|passed)|empty string|none|null|without (?:a|an|the|it|this))\b",
    r"\b(?:max|maximum|min|minimum|at most|at least|no more than|up to \d|limited|limits? (?:of|is|to)|cap(?:s|ped)?|between \d|ranges?|rate limit)\b",
    r"\b(?:format(?:s|ted)?|iso[ -]?8601|rfc ?\d|yyyy|utc|epoch|unix|base64|json|glob|regexp?|regular expression|csv|comma[ -]separated|markdown|html|yaml)\b",
    r"\bcase[ -]?(?:in)?sensitiv|\b(?:prefix(?:ed|es)?|wildcards?|placeholders?|relative|absolute|exact|zero[ -]based|0-based|1-based)\b",
    r"\b(?:seconds?|milliseconds?|minutes?|ms|hours?|days?|bytes|[km]i?b|pixels?|px|percent|cents|degrees|tokens|characters) ?\)",
    r"\b\d+(?:\.\d+)?(?: |-)?(?:seconds?|milliseconds?|minutes?|ms|hours?|days?|bytes|kb|mb|gb|km|characters|chars|items|results|records|requests|ids|per)\b",
    r"\b(?:instead|valid (?:\w+ )?(?:values?|are|types?|options?)|values?:|scopes?:|allowed|accepts?|accepted|one of|either|possible values|options?:|optional:|required:|constraints?)",
    r"\b(?:before (?:calling|using)|first (?:call|use|run)|first$|call(?:ed)? first|get (?:it|this|them) (?:from|with|via)|obtain(?:ed)?|returned (?:by|from)|from (?:a |the )?(?:previous|prior|last))",
    r"\b(?:true|false)\b ?(?:=|to|for|,|\(default)|\bset (?:to|this)\b|\bshould (?:be|contain|include|have|either)\b|\bmust\b",
    r"\b(?:from|via|with|by|use|call|see|run|using)\b:? (?:the )?[`'\"]?[a-z][a-z0-9]*[_-][a-z0-9_-]+",
    r"默认|預設|默認|省略|留空|为空|最大|最多|最小|最少|至少|不超过|格式|范围|範圍|取值|可选值|单位|區分|区分|デフォルト|省略|기본값|по умолчанию|por defecto|padrão|par défaut|standardmäßig",
)
_HINTING = _any(
    r"\b(?:should|prefer|recommended|e\.g|for example|such as|use|pass|provide|specify|include|set)\b",
    r"[{\[$%*]|\w=\w|'[^' ]{1,40}'|\"[^\" ]{1,40}\"|`[^`]{1,60}`",
)
_ABOUT_RESULTS = _any(
    r"^\W{0,4}(?:returns?|the (?:response|result|output)|output|response|shows|displays|provides|includes|lists|handles|supports|retrieves|fetches|gets)\b",
)
_ADVERTISING = _any(
    r"^\W{0,4}(?:use (?:this|it)\b(?! param| value| field| option| only)|use (?:when|for|cases?)\b|best for|useful|ideal|perfect|great for|suitable|helpful|essential|efficient|this (?:tool|is|operation|endpoint|function|method|helps)|don't use when|when to use|you can|allows|enables)",
)


def weight(sentence: str) -> int:
    """How much a caller needs a sentence: 0 for none, up to BINDING."""
    found = 0
    if _BINDING.search(sentence):
        found = BINDING
    elif _TELLING.search(sentence):
        found = TELLING
    elif _HINTING.search(sentence):
        found = HINTING
    if _ADVERTISING.match(sentence) or _ABOUT_RESULTS.match(sentence):
        found -= 1 if found == BINDING else 2
    return max(found, 0)


def first_cue(sentence: str) -> int:
    """Where the first word stands that makes the sentence a rule; 0 if there is none."""
    found = _BINDING.search(sentence) or _TELLING.search(sentence)
    return found.start() if found else 0
