"""Makes requests for a tool from the tool itself, by rules: without a model and without a person.

`pairs.py` calls this for the corpora, which have no queries. A request is made from a sentence of the description or
from the verb and object of the name, in the forms that people use, with values for parameters and sometimes the
server's name. Knows nothing about sets or files; all randomness comes from the caller's generator.
"""

from __future__ import annotations

import random
import re

from training.features import STOP_WORDS, ToolWords

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\[*#-])|\s*[\n•]\s*|\s+-\s+|\s*(?:\*\*|#+\s|```)\s*")
_WHOLE_FORMS = ("what ", "which ", "show me", "tell me", "give me", "see ")  # complete requests, which get no opening
_LEAD_IN = re.compile(
    r"^(?:(?:this|the) (?:tool|function|endpoint|api|command|method|operation|action)"
    r"(?: (?:is used to|can be used to|allows you to|lets you|allows users to|will|helps to|helps|is for))?"
    r"|use this (?:tool|function)? ?(?:to|when you need to|for)|(?:a )?tool (?:to|for|that)|used to|allows you to"
    r"|provides (?:a|an) (?:tool|way) (?:to|for))\s+",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"\s*(?:[,;:(]| which | that | using | by | including | such as | based on | so that ).*$")

VERB_SYNONYMS: dict[str, tuple[str, ...]] = {
    "get": ("show me", "find", "fetch", "give me", "look up", "check", "tell me"),
    "retrieve": ("get", "show me", "fetch", "find", "pull up", "look up"),
    "fetch": ("get", "download", "pull", "show me"),
    "list": ("show me all", "show", "what are", "give me all", "see all", "which are"),
    "search": ("find", "look for", "search for", "look up"),
    "find": ("search for", "look for", "locate"),
    "create": ("make", "add", "set up", "start", "generate", "new"),
    "add": ("create", "put in", "insert", "include", "attach"),
    "delete": ("remove", "get rid of", "erase", "drop", "clear"),
    "remove": ("delete", "take out", "get rid of", "drop"),
    "update": ("change", "edit", "modify", "set", "adjust"),
    "edit": ("change", "update", "modify"),
    "modify": ("change", "update", "edit"),
    "set": ("change", "update", "configure"),
    "send": ("post", "deliver", "message", "write"),
    "post": ("send", "publish", "write"),
    "read": ("open", "show me", "view", "see what is in"),
    "write": ("save", "put", "store"),
    "run": ("execute", "start", "launch"),
    "execute": ("run", "perform", "start"),
    "generate": ("create", "make", "produce", "build"),
    "convert": ("turn", "change", "transform"),
    "calculate": ("compute", "work out", "figure out", "determine"),
    "check": ("verify", "see", "test", "look at"),
    "analyze": ("examine", "study", "look into", "review"),
    "download": ("get", "save", "fetch"),
    "upload": ("send", "put", "add"),
    "move": ("transfer", "relocate", "put"),
    "copy": ("duplicate", "clone"),
    "describe": ("explain", "show details of", "give details about"),
    "navigate": ("go", "open", "browse"),
    "cancel": ("stop", "call off", "abort"),
    "schedule": ("plan", "book", "arrange"),
    "query": ("ask", "look up", "search", "get data from"),
    "extract": ("pull out", "get", "take"),
    "summarize": ("sum up", "give a short version of"),
    "validate": ("check", "verify"),
    "translate": ("convert", "put"),
    "track": ("follow", "monitor"),
    "returns": ("get", "give me"),
}
_OPENINGS = (
    "", "", "", "", "can you ", "could you ", "please ", "i need to ", "i want to ", "i'd like to ",
    "help me ", "how do i ", "how can i ", "is there a way to ", "let me ", "we need to ", "i am trying to ",
)  # fmt: skip
_QUESTIONS = (
    "what {o} are there", "which {o} do i have", "show me the {o}", "what is the {o}", "give me details about the {o}",
    "do we have any {o}", "what are the {o}", "tell me about the {o}", "where can i see the {o}",
)  # fmt: skip
_SERVER_PHRASES = ("in {s}", "on {s}", "using {s}", "with {s}", "from {s}", "{s}", "via {s}", "for {s}")
_VALUES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("email", ("anna@example.com", "john.doe@company.com")),
    ("url", ("https://example.com", "https://news.site/article")),
    ("path", ("/home/anna/report.txt", "src/main.py", "C:\\docs\\notes.md")),
    ("file", ("report.pdf", "data.csv", "notes.md")),
    ("date", ("2024-05-01", "tomorrow", "last week", "next Monday")),
    ("time", ("10:30", "the last 24 hours", "9 am")),
    ("city", ("Paris", "Tokyo", "San Francisco", "Berlin")),
    ("location", ("New York", "London", "downtown Seattle")),
    ("country", ("France", "Japan", "Brazil")),
    ("symbol", ("AAPL", "TSLA", "BTC")),
    ("language", ("English", "Spanish", "Python")),
    ("repo", ("octo/hello-world", "acme/backend")),
    ("branch", ("main", "feature/login")),
    ("name", ("<name>", "my-project", "Alice", "test-01")),
    ("id", ("12345", "<id>", "A-778", "the given id")),
    ("limit", ("10", "five", "the top 3")),
    ("query", ("machine learning", "best coffee", "quarterly revenue")),
)


def sentences(description: str) -> list[str]:
    """The description's sentences of three words or more, without markup."""
    found = [part.strip(" #*`-.\t") for part in _SENTENCE_END.split(description)]
    return [sentence for sentence in found if len(sentence.split()) >= 3]


def _base_verb(word: str) -> str:
    """`Retrieves` gives `retrieve`; a word that is not in the third person stays as it is."""
    word = word.lower()
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("ches", "shes", "sses", "xes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3:
        return word[:-1]
    return word


def _imperative(sentence: str) -> str:
    """A descriptive sentence as an order: `Retrieves all users` gives `retrieve all users`."""
    bare = _LEAD_IN.sub("", sentence)
    first, _, rest = bare.partition(" ")
    return f"{_base_verb(first)} {rest}" if rest else bare


def _reword(order: str, chance: random.Random) -> str:
    """Replace the leading verb with another that people use for it."""
    first, _, rest = order.partition(" ")
    others = VERB_SYNONYMS.get(_base_verb(first))
    return f"{chance.choice(others)} {rest}" if others and rest else order


def _opened(order: str, chance: random.Random) -> str:
    """The order after one of the openings that people use."""
    return order if order.startswith(_WHOLE_FORMS) else chance.choice(_OPENINGS) + order


def _value(parameter: str, chance: random.Random) -> str:
    for word, values in _VALUES:
        if word in parameter.split():
            return chance.choice(values)
    return chance.choice((f"<{parameter.replace(' ', '_')}>", f"<{parameter.replace(' ', '-')}>"))


def _with_details(request: str, tool: ToolWords, chance: random.Random) -> str:
    """Add a parameter with a value, the server, or neither."""
    roll = chance.random()
    if tool.parameters and roll < 0.3:
        parameter = chance.choice(tool.parameters[:3])
        form = chance.choice(("{r} for {p} {v}", "{r} in {p} {v}", "{r} with {p} {v}", "{r} {v}"))
        return form.format(r=request, p=parameter, v=_value(parameter, chance))
    if tool.server and roll < 0.5:
        return f"{request} {chance.choice(_SERVER_PHRASES).format(s=tool.server)}"
    return request


def from_name(tool: ToolWords, chance: random.Random) -> str | None:
    """A request made from the name's verb and object."""
    words = [word for word in tool.name.split() if word not in tool.server.split() or len(tool.name.split()) < 3]
    if len(words) < 2:
        return None
    verb, thing = words[0], " ".join(words[1:])
    if verb in ("get", "list", "retrieve", "fetch", "show", "search", "find", "describe") and chance.random() < 0.5:
        request = chance.choice(_QUESTIONS).format(o=thing)
    else:
        article = chance.choice(("", "the ", "a ", "my ", "all "))
        request = _opened(_reword(f"{verb} {article}{thing}", chance), chance)
    return _with_details(request, tool, chance)


def from_sentence(sentence: str, tool: ToolWords, chance: random.Random) -> str:
    """A request made from a descriptive sentence: as an order, sometimes reworded or cut after its first clause."""
    order = _imperative(sentence)
    if chance.random() < 0.5:
        shorter = _CLAUSE.sub("", order)
        order = shorter if len(shorter.split()) >= 3 else order
    if chance.random() < 0.5:
        order = _reword(order, chance)
    request = _opened(order, chance)
    return _with_details(request, tool, chance) if chance.random() < 0.5 else request


def keywords(tool: ToolWords, chance: random.Random) -> str | None:
    """Two to five of the tool's own words."""
    text = f"{tool.name} {tool.description[:300]}"
    words = list(dict.fromkeys(re.findall(r"[a-z]{3,}", text.lower())))
    content = [word for word in words if word not in STOP_WORDS]
    if len(content) < 3:
        return None
    chosen = chance.sample(content, min(len(content), chance.randint(2, 5)))
    return " ".join(chosen)


def near_keywords(tool: ToolWords, chance: random.Random) -> str | None:
    """Two to four words of the name and the first sentence, in order, as people type into a search box."""
    first = (sentences(tool.description) or [""])[0]
    words = dict.fromkeys(re.findall(r"[a-z]{3,}", f"{tool.name} {first[:120]}".lower()))
    content = [word for word in words if word not in STOP_WORDS]
    if len(content) < 3:
        return None
    count = min(len(content), chance.randint(2, 4))
    return " ".join(content[at] for at in sorted(chance.sample(range(len(content)), count)))


def mistyped(request: str, chance: random.Random) -> str:
    """The request with typing errors in one or two longer words: letters swapped, dropped, doubled or replaced."""
    words = request.split(" ")
    long_enough = [at for at, word in enumerate(words) if len(word) >= 4 and word.isalpha()]
    for at in chance.sample(long_enough, min(len(long_enough), chance.choice((1, 1, 2)))):
        words[at] = _slip(words[at], chance)
    return " ".join(words)


def _slip(word: str, chance: random.Random) -> str:
    at = chance.randrange(1, len(word) - 1)
    return chance.choice(
        (
            word[:at] + word[at + 1] + word[at] + word[at + 2 :],
            word[:at] + word[at + 1 :],
            word[:at] + word[at] + word[at:],
            word[:at] + chance.choice("abcdefghijklmnopqrstuvwxyz") + word[at + 1 :],
        )
    )
