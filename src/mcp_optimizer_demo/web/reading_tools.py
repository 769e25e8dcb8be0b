"""The tools that read one page: its text, summary, outline, links, metadata and picture."""

import base64
import re
from typing import Any

from mcp_optimizer_demo.json_schema import arguments, array, boolean, integer, record, result, string
from mcp_optimizer_demo.toolserver import Answer, Arguments, DemoTool, Picture
from mcp_optimizer_demo.web.finding_tools import URL
from mcp_optimizer_demo.web.reading import key_sentences
from mcp_optimizer_demo.web.site import Site, sentences_of, words_of
from mcp_optimizer_demo.web.thumbnail import HEIGHT, WIDTH, thumbnail

WORDS_PER_MINUTE = 220


def fetch_page(site: Site, args: Arguments) -> dict[str, Any]:
    page = site.page(args["url"])
    content = page.markdown if args.get("format", "markdown") == "markdown" else page.text
    start, most = args.get("start", 0), args.get("max_characters", 20_000)
    part = content[start : start + most]
    return {
        "url": page.url,
        "title": page.title,
        "content": part,
        "total_characters": len(content),
        "is_complete": len(part) == len(content),
    }


def summarize_page(site: Site, args: Arguments) -> dict[str, Any]:
    page = site.page(args["url"])
    chosen = key_sentences(page, args.get("sentences", 3))
    return {
        "url": page.url,
        "title": page.title,
        "summary": " ".join(chosen),
        "sentences_kept": len(chosen),
        "sentences_total": len(sentences_of(page)),
    }


def page_outline(site: Site, args: Arguments) -> dict[str, Any]:
    page = site.page(args["url"])
    deepest = args.get("max_level", 6)
    outline: list[dict[str, Any]] = []
    for block in page.blocks:
        if block.kind == "heading":
            outline.append({"level": block.level, "heading": block.text, "words": 0})
        elif outline:
            outline[-1]["words"] += len(words_of(block.text))
    return {
        "url": page.url,
        "title": page.title,
        "outline": [entry for entry in outline if entry["level"] <= deepest],
    }


def extract_links(site: Site, args: Arguments) -> dict[str, Any]:
    page, kind = site.page(args["url"]), args.get("kind", "all")
    links = [link for link in page.links if kind == "all" or link.is_internal == (kind == "internal")]
    return {
        "url": page.url,
        "links": [{"text": link.text, "url": link.url, "is_internal": link.is_internal} for link in links],
        "linked_from": [other.url for other in site.pages.values() if page.url in {link.url for link in other.links}],
    }


def find_in_page(site: Site, args: Arguments) -> dict[str, Any]:
    page = site.page(args["url"])
    text, around = page.text.replace("\n", " "), args.get("context_characters", 60)
    found = re.finditer(re.escape(args["phrase"]), text, 0 if args.get("match_case") else re.IGNORECASE)
    matches = [
        {"position": match.start(), "context": text[max(0, match.start() - around) : match.end() + around]}
        for match in found
    ]
    return {"url": page.url, "phrase": args["phrase"], "total": len(matches), "matches": matches}


def page_metadata(site: Site, args: Arguments) -> dict[str, Any]:
    page = site.page(args["url"])
    words = len(words_of(page.text))
    return {
        "url": page.url,
        "title": page.title,
        "summary": page.summary,
        "author": page.author,
        "published": page.published,
        "topics": list(page.topics),
        "word_count": words,
        "reading_minutes": max(1, round(words / WORDS_PER_MINUTE)),
        "link_count": len(page.links),
    }


def page_thumbnail(site: Site, args: Arguments) -> Answer:
    page = site.page(args["url"])
    image = thumbnail(page)
    facts = {"url": page.url, "title": page.title, "width": WIDTH, "height": HEIGHT, "bytes": len(image)}
    return Picture(base64.b64encode(image).decode("ascii"), "image/png", facts)


READING_TOOLS = (
    DemoTool(
        name="fetch_page",
        title="Fetch Page",
        description="Read a page, as Markdown or as plain text without headings and links. Long pages can be read in "
        "parts with start and max_characters.",
        input_schema=arguments(
            {
                "url": URL,
                "format": {
                    "type": "string",
                    "enum": ["markdown", "text"],
                    "default": "markdown",
                    "description": "The form of the content.",
                },
                "start": integer("Number of characters to skip.", minimum=0, default=0),
                "max_characters": integer(
                    "The largest number of characters to return.", minimum=100, maximum=20_000, default=20_000
                ),
            },
            required=("url",),
        ),
        output_schema=result(
            {
                "url": string("Address of the page."),
                "title": string("Title of the page."),
                "content": string("The content, or the part of it that was asked for."),
                "total_characters": integer("Length of the whole content."),
                "is_complete": boolean("Whether the whole content was returned."),
            }
        ),
        handler=fetch_page,
    ),
    DemoTool(
        name="summarize_page",
        title="Summarize Page",
        description="Sum up a page by its most important sentences, chosen by the words that matter most on it and "
        "given in their original order and wording. Much shorter than fetch_page.",
        input_schema=arguments(
            {"url": URL, "sentences": integer("How many sentences to keep.", minimum=1, maximum=10, default=3)},
            required=("url",),
        ),
        handler=summarize_page,
    ),
    DemoTool(
        name="page_outline",
        title="Page Outline",
        description="List the headings of a page in order, with their level and the number of words below each.",
        input_schema=arguments(
            {"url": URL, "max_level": integer("Leave out deeper headings.", minimum=1, maximum=6, default=6)},
            required=("url",),
        ),
        handler=page_outline,
    ),
    DemoTool(
        name="extract_links",
        title="Extract Links",
        description="List the links on a page, those to other pages here and those to elsewhere, and the pages that "
        "link to it.",
        input_schema=arguments(
            {
                "url": URL,
                "kind": {
                    "type": "string",
                    "enum": ["all", "internal", "external"],
                    "default": "all",
                    "description": "Which links to return.",
                },
            },
            required=("url",),
        ),
        output_schema=result(
            {
                "url": string("Address of the page."),
                "links": array(
                    record(
                        {
                            "text": string("Text of the link."),
                            "url": string("Where it leads."),
                            "is_internal": boolean("Whether it leads to another page here."),
                        },
                        required=("text", "url", "is_internal"),
                    ),
                    "The links in the order they appear.",
                ),
                "linked_from": array({"type": "string"}, "Addresses of the pages that link to this one."),
            }
        ),
        handler=extract_links,
    ),
    DemoTool(
        name="find_in_page",
        title="Find In Page",
        description="Find every place where a word or phrase occurs on a page, with the text around it.",
        input_schema=arguments(
            {
                "url": URL,
                "phrase": string("The exact word or phrase to find.", minLength=1, maxLength=200),
                "match_case": boolean("Whether upper and lower case must match.", default=False),
                "context_characters": integer("Characters to show on each side.", minimum=0, maximum=500, default=60),
            },
            required=("url", "phrase"),
        ),
        handler=find_in_page,
    ),
    DemoTool(
        name="page_metadata",
        title="Page Metadata",
        description="Tell who wrote a page and when, its topics, length, reading time and number of links, without its "
        "content.",
        input_schema=arguments({"url": URL}, required=("url",)),
        handler=page_metadata,
    ),
    DemoTool(
        name="page_thumbnail",
        title="Page Thumbnail",
        description="Draw a small picture of how a page is laid out: headings as bars, paragraphs as lines, list items "
        "indented. Returns a PNG image.",
        input_schema=arguments({"url": URL}, required=("url",)),
        handler=page_thumbnail,
    ),
)
