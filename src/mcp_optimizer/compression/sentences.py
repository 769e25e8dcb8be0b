"""Splits the text of a description into sentences and units, shortens sentences, and recognises those that are rules
for callers. Pure.

A shortened sentence has no labels, filler or repeated examples. Any text is split in linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator

from mcp_optimizer.runtime.patterns import regex

# The words that mark a sentence as a rule for callers. Single words are looked up in sets; only phrases need regular
# expressions. Those are alternations of short literals without nested repetition, so any text is searched in linear
# time.

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


# A full stop that does not end a sentence.
_ABBREVIATION = regex(r"(?:\b(?:e\.g|i\.e|etc|vs|cf|approx|incl|no|fig|st|dr|mr|ms)|\b[A-Z])\.$", re.I)
_LONGEST_ABBREVIATION = 8
_END = regex(r"[.!?](?=\s|$)|[。！？]|\n\s*\n|\n(?=\s*(?:[-*•#|]|\d+[.)]))|:\s*\n")

_FENCE = regex(r"^[ \t]*(?:```|~~~)")
_SKIPPED = regex(
    r"^[\W_]{0,8}(?:returns?|return values?|outputs?|responses?|examples?|samples?|usage examples?|see also|use cases?"
    r"|when to use|features|key features|best practices|error handling|next steps)\b[^.:\n]{0,40}(?::|$)",
    re.I,
)
_HEADING = regex(r"^(?:#|[\W_]{0,8}[A-Z][^.!?:\n]{0,60}:[ \t*]*$|[A-Z][\w ]{2,30}: )")
_ITEM = regex(r"^[ \t]*(?:[-*•]|\d{1,2}[.)])[ \t]")
_ITEM_MARK = regex(r"^[ \t]*(?:[-*•]|\d{1,2}[.)])[ \t]+")
_OF_VALUES = regex(
    r"\b(?:options?|values?|types?|formats?|modes?|models?|one of|accept\w{0,3}|available|supported|patterns?)\b", re.I
)
_LONGEST_LIST = 200


def sentences(text: str) -> Iterator[str]:
    """The sentences in order, with their punctuation and blanks; together they are the text."""
    begin = 0
    for end in _END.finditer(text):
        candidate = text[begin : end.end()]
        if candidate.strip() and not _ABBREVIATION.search(candidate[-_LONGEST_ABBREVIATION:]):
            yield candidate
            begin = end.end()
    if text[begin:].strip():
        yield text[begin:]


def units(text: str, is_rule: Callable[[str], bool]) -> Iterator[str]:
    """Sentences and list items, without examples and without statements about results.

    List items that are no rules of their own, and lists of values, form one unit with their heading.
    """
    heading = ""
    for sentence in sentences("\n".join(_prose(text))):
        unit = sentence.strip()
        if heading and _ITEM.match(unit) and _belongs(unit, heading, is_rule):
            heading += f"{'' if heading.endswith(':') else ';'} {_ITEM_MARK.sub('', unit).rstrip('.')}"
            continue
        if heading:
            yield heading
        heading = unit if unit.endswith(":") else ""
        if not heading:
            yield unit
    if heading:
        yield heading


def _belongs(item: str, heading: str, is_rule: Callable[[str], bool]) -> bool:
    """Whether a list item must be read with its heading."""
    fits = len(heading) + len(item) <= _LONGEST_LIST
    return fits and (_OF_VALUES.search(heading) is not None or not is_rule(item))


def _prose(text: str) -> Iterator[str]:
    """The lines outside code and outside sections with examples or results."""
    fenced, after_blank = False, False
    skipped: int | None = None
    for number, line in enumerate(text.split("\n")):
        said = line.lstrip()
        indent = len(line) - len(said)
        if _FENCE.match(line):
            fenced = not fenced
        elif fenced:
            continue
        elif number and _SKIPPED.match(line):
            skipped, after_blank = indent, False
        elif not said:
            after_blank = True
            yield line
        elif skipped is None or (indent <= skipped and _ends_section(line, said, after_blank)):
            skipped, after_blank = None, False
            yield line


def _ends_section(line: str, said: str, after_blank: bool) -> bool:
    return _HEADING.match(line) is not None or (after_blank and said[0].isalpha())


LONGEST = 200
"""Letters of one rule; a longer one is cut after a clause."""

_MARKS = regex(r"^(?:[\s#*•|>_–—✅❌❗⚠️🚨📋🔴💡-]|\d{1,2}[.)]\s)+")
_EMPHASIS = regex(r"\*\*(?=\w[^*\n]{0,100}\*\*)|(?<=[\w.:!?)])\*\*|`(\w[\w./-]{0,80})`")
_LINK = regex(r"\[([^\[\]]{1,80})\]\([^()\s]{1,300}\)")
_FOR_EXAMPLE = regex(r"(?<=[(,] )(?:for example|e\.g\.)[,:]? |(?<=\()(?:for example|e\.g\.?)[,:]? ", re.I)
_EXAMPLES = regex(
    r"(?<=[( ])(e\.g\.|such as) (['\"`]?)([\w./:@+-]{1,60})\2((?:,? (?:or |and )?\2[\w./:@+-]{1,60}\2){1,20})(?=\))",
    re.I,
)
_BETWEEN = regex(r",? (?:or |and )?")
_IN_BRACKETS = regex(r"\s?\((?:e\.g\.?|for example|such as|ex)[,:]?[^()]{0,300}\)", re.I)
_OPTIONAL = regex(r"\s?\((?:optional|required)\)", re.I)
_LABEL = regex(
    r"^(?:please note(?: that)?|note(?: that)?|notes|important(?: note)?|warning|caution|critical|attention|tip|hint|nb"
    r"|optional|required|mandatory|description) ?(?:[:!,.]| [-–—])\s*|^note that |^optional (?=\w)",
    re.I,
)
_SUBJECT = regex(
    r"^(?:this (?:tool|parameter|param|field|value|option|argument|operation|command) "
    r"(?=(?:is|must|should|can|will|does|only|requires)\b)|it (?=(?:is|must|should|can|will|only)\b)|please "
    r"|be sure to |make sure (?:to |that )?|you (?=must|can|should|may|need)|the (?:value|parameter) (?=must|should))",
    re.I,
)
_IS = regex(r"^is (?=\w)", re.I)
_REASON = regex(
    r"(?<=[\w)'\"`]{3})(?:,| [-–—])? (?:because|since (?:the|it|this|they)|to (?:avoid|prevent|reduce|ensure|save"
    r"|minimize)) [^.;]{1,200}\.?$",
    re.I,
)
_CLAUSE_BEGIN = regex(r"; |: | [-–—] |\. ")
_CLAUSE_END = regex(r"[,;:] |\.\s| [-–—] | \(")
_LETTERS = regex(r"[^\W\d]+")
_DIGITS = regex(r"\d+")


def shortest(sentence: str) -> str:
    """A rule reduced to what its caller needs; cut after a clause if it is very long."""
    text = _REASON.sub("", " ".join(without_filler(sentence).split()).rstrip(" :;,"))
    if len(text) > LONGEST:
        text = _IN_BRACKETS.sub("", text)
    return text if len(text) <= LONGEST else cut(text, LONGEST)


def without_filler(sentence: str) -> str:
    """The sentence without markup, labels ("Note:", "Optional.") and a subject that is obvious."""
    whole = _OPTIONAL.sub("", _LINK.sub(r"\1", plain(_MARKS.sub("", sentence.strip()))))
    whole = _EXAMPLES.sub(_one_example, whole)
    text = whole
    for pattern in (_LABEL, _MARKS, _LABEL, _SUBJECT, _IS):
        text = pattern.sub("", text, count=1)
    return text if text == whole else text[:1].upper() + text[1:]


def plain(text: str) -> str:
    """The text without emphasis, and with "e.g." for "for example"."""
    return _FOR_EXAMPLE.sub("e.g. ", _EMPHASIS.sub(r"\1", text))


def cut(text: str, most: int) -> str:
    """At most `most` letters around the word that makes the text a rule, from clause to clause."""
    cue = first_cue(text)
    begins = [match.end() for match in _CLAUSE_BEGIN.finditer(text, 0, cue)]
    begin = begins[-1] if begins and cue >= most // 2 else 0
    ends = (match.end() for match in _CLAUSE_END.finditer(text, cue))
    end = max((end for end in ends if end <= begin + most), default=0)
    if end <= begin + most // 3:
        end = begin + len(text[begin : begin + most].rsplit(" ", 1)[0])
    return text[begin:end].rstrip(" ,;:(-–—") + ("…" if end < len(text) else "")


def clause_before(text: str, position: int, most: int) -> int:
    """The start of the clause that contains a position; the position itself if the start is too far back."""
    ends = (match.end() for match in _CLAUSE_END.finditer(text, max(position - most, 0), position))
    return max(ends, default=position)


def ended(text: str) -> str:
    """The text with a full stop, unless it ends in punctuation."""
    return text if not text or text[-1] in ".!?…。！？" else f"{text}."


def _one_example(found: re.Match[str]) -> str:
    """The first of several examples of one form."""
    lead, mark, first, others = found.groups()
    forms = {_form(other.strip(mark or None)) for other in _BETWEEN.split(others) if other}
    return f"{lead} {mark}{first}{mark}" if forms <= {_form(first)} else found.group()


def _form(example: str) -> str:
    return _DIGITS.sub("9", _LETTERS.sub("a", example))
