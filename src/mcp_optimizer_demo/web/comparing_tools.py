"""The tools that measure pages against each other or alone: compare_pages and count_words."""

from collections import Counter
from typing import Any

from mcp_optimizer_demo.json_schema import arguments, array, boolean, integer, number, result, string
from mcp_optimizer_demo.toolserver import Arguments, DemoTool
from mcp_optimizer_demo.web.finding_tools import URL
from mcp_optimizer_demo.web.reading import STOP_WORDS, rarity, similarity, weights_of
from mcp_optimizer_demo.web.site import Site, WebPage, sentences_of, words_of

SHOWN_WORDS = 12


def compare_pages(site: Site, args: Arguments) -> dict[str, Any]:
    first, second = site.page(args["url"]), site.page(args["other_url"])
    rare = rarity(site)

    def characteristic(words: set[str], *pages: WebPage) -> list[str]:
        weight = {word: rare[word] * sum(weights_of(page)[word] for page in pages) for word in words}
        return sorted(words, key=lambda word: (-weight[word], word))[:SHOWN_WORDS]

    one, other = set(weights_of(first)), set(weights_of(second))
    return {
        "url": first.url,
        "other_url": second.url,
        "similarity": round(similarity(rare, first, second), 3),
        "truncated": max(map(len, (one & other, one - other, other - one))) > SHOWN_WORDS,
        "shared_words": characteristic(one & other, first, second),
        "only_in_first": characteristic(one - other, first),
        "only_in_second": characteristic(other - one, second),
        "shared_topics": sorted(set(first.topics) & set(second.topics)),
        "first_links_to_second": second.url in {link.url for link in first.links},
        "second_links_to_first": first.url in {link.url for link in second.links},
    }


def count_words(site: Site, args: Arguments) -> dict[str, Any]:
    page = site.page(args["url"])
    words = words_of(page.text)
    counted = words if args.get("include_common_words") else [word for word in words if word not in STOP_WORDS]
    ranking = sorted(Counter(counted).items(), key=lambda pair: (-pair[1], pair[0]))
    sentences, most = sentences_of(page), args.get("top", 10)
    return {
        "url": page.url,
        "words": len(words),
        "distinct_words": len(set(words)),
        "characters": len(page.text),
        "sentences": len(sentences),
        "words_per_sentence": round(sum(len(words_of(sentence)) for sentence in sentences) / max(1, len(sentences)), 1),
        "truncated": len(ranking) > most,
        "most_frequent": [{"word": word, "count": count} for word, count in ranking[:most]],
    }


COMPARING_TOOLS = (
    DemoTool(
        name="compare_pages",
        title="Compare Pages",
        description="Compare two pages: how alike they are from 0 to 1, the words they share, the words that only one "
        "of them has, and whether they link to each other.",
        input_schema=arguments(
            {"url": URL, "other_url": {**URL, "description": "Address of the page to compare with."}},
            required=("url", "other_url"),
        ),
        output_schema=result(
            {
                "url": string("Address of the first page."),
                "other_url": string("Address of the second page."),
                "similarity": number("How alike the pages are, from 0 to 1."),
                "truncated": boolean(f"Whether a list of words has more than the {SHOWN_WORDS} that are returned."),
                "shared_words": array({"type": "string"}, "Telling words that both pages have."),
                "only_in_first": array({"type": "string"}, "Telling words that only the first page has."),
                "only_in_second": array({"type": "string"}, "Telling words that only the second page has."),
                "shared_topics": array({"type": "string"}, "Topics both pages are filed under."),
                "first_links_to_second": boolean("Whether the first page links to the second."),
                "second_links_to_first": boolean("Whether the second page links to the first."),
            }
        ),
        handler=compare_pages,
    ),
    DemoTool(
        name="count_words",
        title="Count Words",
        description="Count the words, sentences and characters of a page and list its most frequent words. If it has "
        "more different words than top, the result says so in truncated.",
        input_schema=arguments(
            {
                "url": URL,
                "top": integer("How many frequent words to list.", minimum=1, maximum=50, default=10),
                "include_common_words": boolean('Whether to list words such as "the" too.', default=False),
            },
            required=("url",),
        ),
        handler=count_words,
    ),
)
