"""Parses the leading clause of an English sentence: its verb, its object, and its additions. Pure.

Called by `five_words`. Knows words only by their classes: "Create a card in a column, and return it" has the verb
"create" and the chunks "a card" and "in a column". `without_lead` first removes introductions such as "Purpose:" or
"This tool allows you to".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from mcp_optimizer.runtime.patterns import regex

# English words by their role in a phrase: verbs, articles, prepositions.

VERBS: Final = frozenset(
    "abort accept access acknowledge activate adapt add adjust aggregate align allocate allow analyse analyze "
    "annotate answer append apply approve archive ask assemble assess assign associate attach attempt audit "
    "authenticate authorize autocomplete backtest backup ban batch begin bind block book boot break bring "
    "broadcast browse build bulk buy calculate call cancel capture cast categorize chain change chart chat "
    "check checkout choose claim classify clean clear click clone close collect combine comment commit compare "
    "compile complete compose compress compute concatenate conduct configure confirm connect consolidate "
    "construct consult contain continue control convert copy correct count crawl create crop cut deactivate "
    "debug decline decode decompile decompose decrypt define delete demote deny deploy deprovision dequeue "
    "derive describe deselect design destroy detach detect determine diagnose diff disable discard disconnect "
    "discover dismiss dispatch display divide download draft drag draw drill drop dump duplicate edit eject "
    "email embed empty emulate enable encode encrypt end enhance enqueue enrich ensure enter enumerate erase "
    "escalate establish estimate evaluate examine exchange execute expand expire explain explore export expose "
    "extend extract extrude factor fail favorite fetch fill filter finalize find finish fix flag flatten flip "
    "flush focus fold follow force forecast forget fork format forward freeze gather generate geocode get give "
    "go grant grep group grow guide halt handle hash hide highlight host hover identify ignore impersonate "
    "import improve include increment index infer ingest init initialise initialize initiate insert inspect "
    "install instantiate integrate interact interpret introspect invalidate invite invoke issue join keep kick "
    "kill label launch learn leave lift like link lint list listen load locate lock log login logout look "
    "lookup mail maintain make manage map mark match measure memorize merge message migrate minimize mint mock "
    "modify monitor move multiply mute name navigate normalize notify observe obtain open optimize orchestrate "
    "order organize outline override overwrite pack package paginate parse partition paste patch pause pay "
    "peek perform persist pin ping plan play plot poll pop populate position post power predict prepare "
    "preprocess press preview print probe process produce profile project promote propose provide provision "
    "prune publish pull purge push put query queue quit quote raise rank rate reactivate read rebase reboot "
    "rebuild recall receive recognize recommend record recover redeploy redirect redo refactor refine refresh "
    "regenerate register reindex reinstall reject release reload remember remove rename render reopen reorder "
    "repair repeat replace replay reply report repost reproject request rerun reschedule reserve reset resize "
    "resolve respond restart restore restrict resume retrain retrieve retry return reuse reveal reverse revert "
    "review revoke rewrite roll rollback rotate round route run sample sanitize save scaffold scale scan "
    "schedule score scrape screenshot scroll search select sell send serialize serve set setup share shift "
    "show shut shutdown sign simplify simulate skip slice snap snapshot snooze solve sort spawn specify split "
    "spot stage standardize star start stash stop store stream style submit subscribe subtract suggest sum "
    "summarise summarize suppress suspend swap sweep swipe switch sync synchronize synthesize tag tail take "
    "tap teach tell terminate test think throw toggle touch trace track train transcode transcribe transfer "
    "transform transition translate trash traverse triage trigger trim troubleshoot truncate try tune turn "
    "tweet type unarchive unassign unban unblock unconfirm uncomment undeploy undo unfavorite unflag unfollow "
    "ungroup uninstall unlike unlink unload unlock unmute unpack unpause unpin unpublish unregister unset "
    "unshare unstage unstar unsubscribe untag unwatch update upgrade upload upscale upsert use validate "
    "vectorize verify view visit visualize vote wait wake walk watch wipe withdraw wrap write zip zoom".split()
)

NOUNS_TOO: Final = frozenset(
    "access answer audit backup batch block book boot break bulk call cast change chart chat checkout claim "
    "comment commit contain control copy cut design diff display download draft drop dump email end exchange "
    "export factor fail filter flag focus follow force forecast format forward group guide hash highlight host "
    "import include index issue label launch like link list load lock log login logout long mail map mark "
    "match measure message name open order outline override pack package patch pause pin ping plan play plot "
    "poll position post power preview print probe process profile project purchase push query queue quote rank "
    "rate record release reply report request reset result return review round route run sample scale scan "
    "schedule score screenshot search set setup share shift show sign snapshot sort spot stage star start stop "
    "store stream style sum swap switch tag tail test touch trace track train transfer transition trash "
    "trigger tweet type update upgrade upload use view vote wait walk watch zip".split()
)
"""Verbs that are as often nouns. After the first word they are taken for nouns."""

READING: Final = frozenset(
    "aggregate analyse analyze browse calculate check compare compute count describe detect diagnose discover "
    "display enumerate estimate examine explain explore extract fetch filter find gather get give identify "
    "inspect list locate look lookup monitor obtain observe preview provide query read report retrieve return "
    "review scan scrape search show summarize view".split()
)
GIVING: Final = frozenset("display enumerate fetch get give obtain provide read retrieve return show view".split())
"""Verbs that the verb of a list may replace."""
NOT_OF_TOOLS: Final = frozenset(
    "access allow ask attempt call choose contain ensure follow give include keep learn leave look note plan "
    "prefer provide remember require see specify support tell try use".split()
)
"""Verbs that often begin a sentence about something else: they count only if the name has them."""
INTENDED: Final = frozenset("access give look provide plan specify".split())
"""The subset of verbs that count with an object."""

ARTICLES: Final = frozenset({"a", "an", "the"})
DETERMINERS: Final = ARTICLES | frozenset(
    "this that these those its their your my our his her each every any some another".split()
)
SOFT: Final = ARTICLES | frozenset(
    "its their this these those all one single multiple several many some any available full complete "
    "currently entire own possible basic overall both".split()
)
"""Words that are dropped if they do not fit."""
FILLERS: Final = frozenset(
    "specific specified given provided particular certain various detailed comprehensive existing following "
    "relevant appropriate desired supplied requested corresponding respective powerful easily simply quickly "
    "efficiently intelligently advanced rich optional optionally".split()
)
"""Words that are always dropped: they say nothing about what a tool does."""
ADJECTIVES: Final = frozenset(
    "new empty clean fast raw short simple rich secure large small long real-time full".split()
)

PREPOSITIONS: Final = frozenset(
    "about above across after against along among around as at before behind below between beyond by during "
    "for from in inside into of off on onto over per since through throughout to toward towards under until "
    "upon using via with within without matching containing including excluding given belonging".split()
)
CONJUNCTIONS: Final = frozenset({"and", "or", "&", "and/or"})
ENDINGS: Final = frozenset(
    "that which who whom whose where when whenever while if unless because so but then than whether how what "
    "why plus you it they we he she is are was were be been being can could may might must shall should will "
    "would has have had do does did not also either instead once again e.g i.e etc such based according so- "
    "called rather".split()
)
"""Words before which a phrase ends, because a new clause begins."""
CLAUSES: Final = frozenset("that whether if how what why which where when".split())
"""Words that begin the object clause of a verb like "check"."""
RELATIVES: Final = frozenset("that which who whom whose where you it they we he she this".split())
"""Words that begin a clause about the noun before them."""
AUXILIARIES: Final = frozenset(
    "is are was were be been being can could may might must shall should will would has have had do does did "
    "not".split()
)
PARTICLES: Final = frozenset({"away", "back", "down", "out", "up"})
"""Words that belong to the verb before them: "clean up"."""
PLACING: Final = frozenset("bring convert drag keep leave place put take transform translate turn".split())
"""Verbs that need a destination: "put a card | on a board"."""
BEHIND: Final = frozenset("accessible available visible related relevant eligible".split())
"""Adjectives that may follow their noun: "workspaces accessible to a user"."""
PARTICIPLES: Final = frozenset("built chosen drawn found held known made seen sent shown taken written".split())
"""Participles that do not end in "ed"."""
LIGHT: Final = frozenset("conduct do execute make perform".split())
"""Verbs that say little without their complete object."""
GERUNDS: Final = frozenset(
    "showing returning starting having allowing enabling providing supporting covering representing describing "
    "considering regarding concerning targeting affecting requiring involving relating returned optimized "
    "designed".split()
)
WEAK: Final = frozenset(
    "list lists number set details detail information info data name names value values contents content "
    "status part parts type types kind version copy amount total count collection overview summary description "
    "text metadata id ids result results everything state properties configuration one some series range body "
    "list/array parameters attributes fields settings existence size".split()
)
"""Nouns that say little without their owner."""
_BEFORE_VERBS: Final = frozenset("auto bulk double dry fine force hard hot left long pre re right soft".split())
"""Words that form a compound with a verb: "double-click"."""

ACRONYMS: Final = frozenset(
    "ai api aws cpu csv css db ddl dns gpu html http https id ids ip ios json jwt llm mcp ml oauth pdf pr prs "
    "rag rss s3 sdk sha sla sms sql ssh ssl svg tls ui uri url urls uuid vm vms vpc vpn wip xml yaml".split()
)


@lru_cache(maxsize=20_000)
def base_form(word: str) -> str:
    """The base form of a verb: "Creates" and "creating" give "create". Empty for any other word."""
    word = word.lower()
    if word in VERBS:
        return word
    before, hyphen, last = word.partition("-")
    if not hyphen:
        return next((form for form in _possible(word) if form in VERBS), "")
    base = base_form(last) if before in _BEFORE_VERBS else ""
    return f"{before}-{base}" if base else ""


def _possible(word: str) -> tuple[str, ...]:
    if word.endswith("ies"):
        return (f"{word[:-3]}y",)
    if word.endswith("s") and not word.endswith("ss"):
        return (word[:-1], word[:-2])
    if word.endswith("ing"):
        stem = word[:-3]
        return (stem, f"{stem}e", stem[:-1] if stem[-1:] == stem[-2:-1] else stem)
    return ()


def plain_form(word: str) -> str:
    """The base form of an unknown verb, judged only by its ending."""
    if word.endswith("ies"):
        return f"{word[:-3]}y"
    if word.endswith(("ches", "shes", "sses", "xes", "zes")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def is_action(word: str) -> bool:
    """Whether a word inside a text is almost certainly a verb."""
    base = base_form(word)
    return bool(base) and base not in NOUNS_TOO and not word.lower().endswith("ing")


def article(following: str) -> str:
    """The indefinite article before a word."""
    word = following.lower()
    if following.isupper() and len(following) <= 4:
        return "an" if word[0] in "aefhilmnorsx" else "a"
    if word.startswith(("uni", "use", "usa", "uri", "url", "uuid", "one", "once", "eu")):
        return "a"
    return "an" if word[:1] in "aeiou" or word.startswith("hour") else "a"


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
