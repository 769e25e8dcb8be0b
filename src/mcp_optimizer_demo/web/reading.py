"""Ranking, summing up and comparing pages: plain word statistics over the site.

Called by the tools; pure functions from pages to numbers and sentences.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping

from mcp_optimizer_demo.web.site import Site, WebPage, sentences_of, words_of

STOP_WORDS = frozenset(
    "a about after all also an and are as at be because been before but by can could do does each for from had has "
    "have he her his how if in into is it its just like many may more most much must no not of on one only or other "
    "out over same she so some such than that the their them then there these they this those through to too two "
    "under until up very was we well were what when where which while who will with without would you your".split()
)
K1, B = 1.4, 0.6
TITLE_WEIGHT = 4


def content_words(text: str) -> list[str]:
    """The words that carry meaning, a plural read as its singular."""
    return [singular(word) for word in words_of(text) if word not in STOP_WORDS]


def singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return f"{word[:-3]}y"
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def weights_of(page: WebPage) -> Counter[str]:
    """How often each word occurs; the title and the topics count more than the text."""
    weights = Counter(content_words(page.text))
    for word in content_words(f"{page.title} {' '.join(page.topics)}"):
        weights[word] += TITLE_WEIGHT
    weights.update(content_words(page.summary))
    return weights


def rarity(site: Site) -> dict[str, float]:
    """For each word, how much its presence says: rare words say more."""
    pages_with = Counter(word for page in site.pages.values() for word in weights_of(page))
    total = len(site.pages)
    return {word: math.log(1 + (total - count + 0.5) / (count + 0.5)) for word, count in pages_with.items()}


def ranked(site: Site, query: str) -> list[tuple[float, WebPage]]:
    """The pages that contain a word of the query, best first (BM25)."""
    wanted = set(content_words(query)) or set(words_of(query))
    rare = rarity(site)
    weights = {page.slug: weights_of(page) for page in site.pages.values()}
    average = sum(count.total() for count in weights.values()) / len(weights)
    scored = []
    for page in site.pages.values():
        counts = weights[page.slug]
        norm = K1 * (1 - B + B * counts.total() / average)
        score = sum(rare[word] * counts[word] * (K1 + 1) / (counts[word] + norm) for word in wanted & counts.keys())
        if score > 0:
            scored.append((score, page))
    return sorted(scored, key=lambda pair: (-pair[0], pair[1].slug))


def best_sentence(page: WebPage, query: str) -> str:
    """The sentence that holds most of the query's words; the summary when none holds any."""
    wanted = set(content_words(query))
    best = max(sentences_of(page), key=lambda sentence: len(wanted & set(content_words(sentence))), default="")
    return best if wanted & set(content_words(best)) else page.summary


def key_sentences(page: WebPage, count: int) -> list[str]:
    """The sentences whose words matter most on this page, in the order of the page."""
    weights = weights_of(page)
    sentences = sentences_of(page)

    def importance(index: int) -> float:
        words = content_words(sentences[index])
        lead = 1.3 if index == 0 else 1.0
        return lead * sum(weights[word] for word in words) / (len(words) + 4) if words else 0.0

    chosen = sorted(range(len(sentences)), key=lambda index: (-importance(index), index))[:count]
    return [sentences[index] for index in sorted(chosen)]


def similarity(rare: Mapping[str, float], one: WebPage, other: WebPage) -> float:
    """How alike two pages are, from 0 to 1: the cosine of their words, rare words counting more."""
    first = {word: count * rare[word] for word, count in weights_of(one).items()}
    second = {word: count * rare[word] for word, count in weights_of(other).items()}
    dot = sum(weight * second[word] for word, weight in first.items() if word in second)
    return dot / (length(first.values()) * length(second.values()))


def length(values: Iterable[float]) -> float:
    return math.sqrt(sum(value * value for value in values))
