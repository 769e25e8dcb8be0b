"""The tools that find pages: web_search, list_pages, related_pages."""

from typing import Any

from mcp_optimizer_demo.json_schema import arguments, array, boolean, integer, number, record, result, string
from mcp_optimizer_demo.toolserver import Arguments, DemoTool
from mcp_optimizer_demo.web.reading import best_sentence, ranked, rarity, similarity
from mcp_optimizer_demo.web.site import Site, WebPage

URL = string(
    'Address of the page, as returned by web_search or list_pages, e.g. "https://pages.example/bees". The last part '
    'alone ("bees") works as well.',
    minLength=1,
    maxLength=300,
)


def page_row(page: WebPage) -> dict[str, Any]:
    return {"url": page.url, "title": page.title, "summary": page.summary}


PAGE_ROW = {
    "url": string("Address of the page."),
    "title": string("Title of the page."),
    "summary": string("What the page is about."),
}


def web_search(site: Site, args: Arguments) -> dict[str, Any]:
    hits = ranked(site, args["query"])
    shown = hits[: args.get("limit", 5)]
    return {
        "query": args["query"],
        "total": len(hits),
        "truncated": len(hits) > len(shown),
        "results": [
            {
                "url": page.url,
                "title": page.title,
                "snippet": best_sentence(page, args["query"]),
                "score": round(score, 3),
            }
            for score, page in shown
        ],
    }


def list_pages(site: Site, args: Arguments) -> dict[str, Any]:
    topic = args.get("topic", "").casefold()
    rows = [page for page in site.pages.values() if not topic or topic in page.topics]
    topics = sorted({topic for page in site.pages.values() for topic in page.topics})
    return {"total": len(rows), "pages": [page_row(page) for page in rows], "topics": topics}


def related_pages(site: Site, args: Arguments) -> dict[str, Any]:
    page = site.page(args["url"])
    linked = {link.url for link in page.links}
    rare = rarity(site)
    scored = [(similarity(rare, page, other), other) for other in site.pages.values() if other != page]
    scored.sort(key=lambda pair: (-pair[0], pair[1].slug))
    most = args.get("limit", 5)
    return {
        "url": page.url,
        "truncated": len(scored) > most,
        "related": [
            {**page_row(other), "similarity": round(score, 3), "is_linked": other.url in linked}
            for score, other in scored[:most]
        ],
    }


FINDING_TOOLS = (
    DemoTool(
        name="web_search",
        title="Web Search",
        description="Search the web pages for words and return the best matches with a fitting sentence from each. "
        "Rare words count more than common ones. Use fetch_page to read a result.",
        input_schema=arguments(
            {
                "query": string('What to search for, e.g. "how do bees find flowers".', minLength=1, maxLength=300),
                "limit": integer(
                    "The largest number of results. If there are more, the result says so in truncated.",
                    minimum=1,
                    maximum=20,
                    default=5,
                ),
            },
            required=("query",),
        ),
        output_schema=result(
            {
                "query": string("The query as given."),
                "total": integer("Number of pages that contain a word of the query."),
                "truncated": boolean("Whether there are more results than limit, which are not returned."),
                "results": array(
                    record(
                        {
                            "url": string("Address of the page."),
                            "title": string("Title of the page."),
                            "snippet": string("A sentence of the page that fits the query."),
                            "score": number("How well the page matches; higher is better."),
                        },
                        required=("url", "title", "snippet", "score"),
                    ),
                    "The results, best first.",
                ),
            }
        ),
        handler=web_search,
    ),
    DemoTool(
        name="list_pages",
        title="List Pages",
        description="List all pages, or those on one topic, with address, title and summary, and the topics there are.",
        input_schema=arguments({"topic": string('Only list pages on this topic, e.g. "nature".', maxLength=60)}),
        handler=list_pages,
    ),
    DemoTool(
        name="related_pages",
        title="Related Pages",
        description="Find the pages that are most alike to a given one in their words, and say whether the page links "
        "to them. If there are more pages than limit, the result says so in truncated.",
        input_schema=arguments(
            {"url": URL, "limit": integer("How many pages to return.", minimum=1, maximum=20, default=5)},
            required=("url",),
        ),
        handler=related_pages,
    ),
)
