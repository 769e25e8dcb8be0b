"""The bundled pages: read from Markdown files with a front matter, parsed into headings, text and links.

The tools work on these values; nothing here knows of tools, and nothing leaves this machine.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mcp_optimizer_demo.toolserver import ToolFault

PAGES_FOLDER = Path(__file__).parent / "pages"
SITE = "https://pages.example/"

HEADING = re.compile(r"^(#{1,6})\s+(.+?)\s*$")
LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9])")


@dataclass(frozen=True, slots=True)
class PageLink:
    text: str
    url: str

    @property
    def is_internal(self) -> bool:
        return self.url.startswith(SITE)


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of the page: a heading, a paragraph, a list item or a quotation."""

    kind: str
    text: str
    level: int = 0


@dataclass(frozen=True, slots=True)
class WebPage:
    slug: str
    title: str
    summary: str
    author: str
    published: str
    topics: tuple[str, ...]
    markdown: str

    @property
    def url(self) -> str:
        return SITE + self.slug

    @property
    def links(self) -> tuple[PageLink, ...]:
        """The links in the order they appear; a bare slug is a link to another page of the site."""
        found = LINK.findall(self.markdown)
        return tuple(PageLink(text, to if "://" in to else SITE + to) for text, to in found)

    @property
    def blocks(self) -> tuple[Block, ...]:
        return tuple(parse_blocks(self.markdown))

    @property
    def text(self) -> str:
        """What a reader reads: without headings and markup."""
        return "\n".join(block.text for block in self.blocks if block.kind != "heading")


def parse_blocks(markdown: str) -> Iterator[Block]:
    for chunk in re.split(r"\n\s*\n", markdown.strip()):
        paragraph: list[str] = []
        for line in chunk.splitlines():
            heading = HEADING.match(line)
            if heading:
                yield Block("heading", plain_text(heading[2]), len(heading[1]))
            elif line.startswith("- "):
                yield Block("item", plain_text(line[2:]))
            elif line.startswith("> "):
                yield Block("quote", plain_text(line[2:]))
            else:
                paragraph.append(line.strip())
        if paragraph:
            yield Block("paragraph", plain_text(" ".join(paragraph)))


def plain_text(markdown: str) -> str:
    return LINK.sub(r"\1", markdown).replace("**", "").replace("*", "").replace("`", "")


def words_of(text: str) -> list[str]:
    return [word.casefold() for word in WORD.findall(text)]


def sentences_of(page: WebPage) -> list[str]:
    """The sentences of the page's paragraphs, in order."""
    paragraphs = [block.text for block in page.blocks if block.kind == "paragraph"]
    return [sentence for text in paragraphs for sentence in SENTENCE_END.split(text)]


@dataclass(frozen=True, slots=True)
class Site:
    """All pages by slug."""

    pages: Mapping[str, WebPage]

    def page(self, address: str) -> WebPage:
        """The page with this url or slug."""
        slug = address.removeprefix(SITE).removeprefix("http://pages.example/").strip("/")
        if slug not in self.pages:
            raise ToolFault(
                f"There is no page at '{address}'. Call list_pages or web_search to find the address of a page."
            )
        return self.pages[slug]


def load_site(folder: Path = PAGES_FOLDER) -> Site:
    pages = [parse_page(path.stem, path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.md"))]
    return Site({page.slug: page for page in pages})


def parse_page(slug: str, source: str) -> WebPage:
    _, front_matter, markdown = source.split("---\n", 2)
    fields = dict(line.split(": ", 1) for line in front_matter.strip().splitlines())
    return WebPage(
        slug=slug,
        title=fields["title"],
        summary=fields["summary"],
        author=fields["author"],
        published=fields["published"],
        topics=tuple(topic.strip() for topic in fields["topics"].split(",")),
        markdown=markdown.strip(),
    )
