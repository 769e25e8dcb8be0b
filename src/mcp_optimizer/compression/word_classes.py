"""English words by their role in a phrase: verbs, articles, prepositions. Used by `clauses` and `phrases`. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

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
