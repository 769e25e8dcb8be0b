"""Writes a sentence in the shortest form that still says it: without labels, filler and repeated examples. Pure."""

from __future__ import annotations

import re

from mcp_optimizer.compression.cues import first_cue

LONGEST = 200
"""Letters of one rule; a longer one is cut after a clause."""

_MARKS = re.compile(r"^(?:[\s#*•|>_–—✅❌❗⚠️🚨📋🔴💡-]|\d{1,2}[.)]\s)+")
_EMPHASIS = re.compile(r"\*\*(?=\w[^*\n]{0,100}\*\*)|(?<=[\w.:!?)])\*\*|`(\w[\w./-]{0,80})`")
_LINK = re.compile(r"\[([^\[\]]{1,80})\]\([^()\s]{1,300}\)")
_FOR_EXAMPLE = re.compile(r"(?<=[(,] )(?:for example|e\.g\.)[,:]? |(?<=\()(?:for example|e\.g\.?)[,:]? ", re.I)
_EXAMPLES = re.compile(
    r"(?<=[( ])(e\.g\.|such as) (['\"`]?)([\w./:@+-]{1,60})\2((?:,? (?:or |and )?\2[\w./:@+-]{1,60}\2){1,20})(?=\))",
    re.I,
)
_BETWEEN = re.compile(r",? (?:or |and )?")
_IN_BRACKETS = re.compile(r"\s?\((?:e\.g\.?|for example|such as|ex)[,:]?[^()]{0,300}\)", re.I)
_OPTIONAL = re.compile(r"\s?\((?:optional|required)\)", re.I)
_LABEL = re.compile(
    r"^(?:please note(?: that)?|note(?: that)?|notes|important(?: note)?|warning|caution|critical|attention|tip|hint|nb"
    r"|optional|required|mandatory|description) ?(?:[:!,.]| [-–—])\s*|^note that |^optional (?=\w)",
    re.I,
)
_SUBJECT = re.compile(
    r"^(?:this (?:tool|parameter|param|field|value|option|argument|operation|command) "
    r"(?=(?:is|must|should|can|will|does|only|requires)\b)|it (?=(?:is|must|should|can|will|only)\b)|please "
    r"|be sure to |make sure (?:to |that )?|you (?=must|can|should|may|need)|the (?:value|parameter) (?=must|should))",
    re.I,
)
_IS = re.compile(r"^is (?=\w)", re.I)
_REASON = re.compile(
    r"(?<=[\w)'\"`]{3})(?:,| [-–—])? (?:because|since (?:the|it|this|they)|to (?:avoid|prevent|reduce|ensure|save"
    r"|minimize)) [^.;]{1,200}\.?$",
    re.I,
)
_CLAUSE_BEGIN = re.compile(r"; |: | [-–—] |\. ")
_CLAUSE_END = re.compile(r"[,;:] |\.\s| [-–—] | \(")
_LETTERS = re.compile(r"[^\W\d]+")
_DIGITS = re.compile(r"\d+")


def shortest(sentence: str) -> str:
    """A rule without what its caller does not need; cut after a clause if it is very long."""
    text = _REASON.sub("", " ".join(without_filler(sentence).split()).rstrip(" :;,"))
    if len(text) > LONGEST:
        text = _IN_BRACKETS.sub("", text)
    return text if len(text) <= LONGEST else cut(text, LONGEST)


def without_filler(sentence: str) -> str:
    """The sentence without marks, labels ("Note:", "Optional.") and a subject that goes without saying."""
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
    """At most so many letters around the word that makes it a rule, from clause to clause."""
    cue = first_cue(text)
    begins = [match.end() for match in _CLAUSE_BEGIN.finditer(text, 0, cue)]
    begin = begins[-1] if begins and cue >= most // 2 else 0
    ends = (match.end() for match in _CLAUSE_END.finditer(text, cue))
    end = max((end for end in ends if end <= begin + most), default=0)
    if end <= begin + most // 3:
        end = begin + len(text[begin : begin + most].rsplit(" ", 1)[0])
    return text[begin:end].rstrip(" ,;:(-–—") + ("…" if end < len(text) else "")


def clause_before(text: str, position: int, most: int) -> int:
    """Where the clause begins that goes on at a position; the position itself if that is too far back."""
    ends = (match.end() for match in _CLAUSE_END.finditer(text, max(position - most, 0), position))
    return max(ends, default=position)


def ended(text: str) -> str:
    """The text with a full stop, unless it ends in some mark."""
    return text if not text or text[-1] in ".!?…。！？" else f"{text}."


def _one_example(found: re.Match[str]) -> str:
    """The first of several examples of one form."""
    lead, mark, first, others = found.groups()
    forms = {_form(other.strip(mark or None)) for other in _BETWEEN.split(others) if other}
    return f"{lead} {mark}{first}{mark}" if forms <= {_form(first)} else found.group()


def _form(example: str) -> str:
    return _DIGITS.sub("9", _LETTERS.sub("a", example))
