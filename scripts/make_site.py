"""Makes the documentation site in build/site from docs/ and the pages that it links to.

    python scripts/make_site.py

Works without a network, and stops at the first dead link, unknown page or thing that a reader's browser would fetch
from elsewhere. Pages of the repository keep their links: what a page of docs/ links to is taken along, at the same
place beside it, and links are written anew. `make site` installs what is needed; tests/contract/test_site.py holds the
parts.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml

ROOT = Path(__file__).parents[1]
SETTINGS = ROOT / "mkdocs.yml"
SOURCE = ROOT / "build" / "site-source"
SITE = ROOT / "build" / "site"
LINK = re.compile(r"(?<=\]\()(?P<target>[^)#:\s]+)(?P<part>#[^)\s]*)?(?=\))")
_CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
_HOME = "README.md"
_BARE = "---\nhide: [navigation, toc]\n---\n\n"
"""In front of the home page, which leads everywhere by itself."""


def place(path: str) -> str:
    """Where a file of the repository is on the site: docs/ is its root, and its home takes the README's place."""
    return "index.md" if path == _HOME else path.removeprefix("docs/")


def wanted() -> dict[str, str]:
    """Every file of the site by its path in the repository, with what it is linked from."""
    found = {str(path.relative_to(ROOT)): "docs/" for path in sorted((ROOT / "docs").rglob("*")) if path.is_file()}
    found |= dict.fromkeys(("CHANGELOG.md", "CONTRIBUTING.md", "RELEASING.md"), "the navigation")
    waiting = [name for name in found if name.endswith(".md")]
    while waiting:
        page = waiting.pop()
        for target in links(page):
            if target != _HOME and target not in found:
                found[target] = page
                if target.endswith(".md"):
                    waiting.append(target)
    return found


def links(page: str) -> Iterator[str]:
    """The files of the repository that a page links to. A folder stands for its README."""
    text = _CODE.sub("", (ROOT / page).read_text(encoding="utf-8"))
    for match in LINK.finditer(text):
        yield file_of(page, match["target"])


def file_of(page: str, target: str) -> str:
    name = posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(target)))
    if (ROOT / name).is_dir():
        name = f"{name}/README.md"
    if name.startswith("..") or not (ROOT / name).is_file():
        raise SystemExit(f"{page} links to {target}, which does not exist")
    return name


def for_the_site(page: str) -> str:
    """A page with its links as they are between the places of the site."""
    here = posixpath.dirname(place(page)) or "."

    def anew(match: re.Match[str]) -> str:
        there = posixpath.relpath(place(file_of(page, match["target"])), here)
        return f"{there}{match['part'] or ''}"

    text = (ROOT / page).read_text(encoding="utf-8")
    pieces, end = [], 0
    for code in _CODE.finditer(text):
        pieces += [LINK.sub(anew, text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*pieces, LINK.sub(anew, text[end:])])


def gather() -> None:
    shutil.rmtree(SOURCE, ignore_errors=True)
    for name in wanted():
        to = SOURCE / place(name)
        to.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".md"):
            to.write_text(_BARE * (place(name) == "index.md") + for_the_site(name), encoding="utf-8")
        else:
            shutil.copyfile(ROOT / name, to)


# llms.txt


@dataclass(frozen=True)
class Entry:
    section: str
    page: str


def navigation() -> list[Entry]:
    """The pages of the navigation in their order, with the titles of their sections."""
    entries: list[Entry] = []

    def walk(items: list[object], section: str) -> None:
        for item in items:
            if isinstance(item, str):
                entries.append(Entry(section, item))
            elif isinstance(item, Mapping):
                for title, below in item.items():
                    if isinstance(below, list):
                        walk(below, section or str(title))
                    else:
                        entries.append(Entry(section, str(below)))

    # Tags such as those for extensions are mkdocs' own, so only the part that is ours is read.
    text = SETTINGS.read_text(encoding="utf-8")
    walk(yaml.safe_load("nav:" + text.partition("\nnav:")[2])["nav"], "")
    return entries


def about(page: str) -> tuple[str, str]:
    """A page's title and first sentence."""
    text = (SOURCE / page).read_text(encoding="utf-8").removeprefix(_BARE)
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    plain = re.sub(r"```.*?```", "", text.partition("\n\n")[2], flags=re.DOTALL)
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", plain)
    paragraphs = (" ".join(one.split()) for one in re.split(r"\n\s*\n", plain))
    first = next((one for one in paragraphs if re.match(r"[A-Z`](?!enerated)", one)), "")
    return (title[1] if title else page), re.split(r"(?<=[.:])\s", first)[0].rstrip(":")


def llms_text() -> str:
    """The pages for models, as llmstxt.org describes: each as Markdown, with one sentence about it."""
    lines = ["# mcp-optimizer", "", "> One MCP endpoint in front of all your MCP servers: finds the few tools that fit"]
    lines[-1] += " a request, makes definitions and results smaller, and reports what that saved."
    section = ""
    for entry in navigation():
        if entry.section != section:
            section = entry.section
            lines += ["", f"## {section}", ""]
        elif not section and len(lines) == 3:
            lines.append("")
        title, sentence = about(entry.page)
        lines.append(f"- [{title}]({entry.page})" + (f": {sentence}" if sentence else ""))
    return "\n".join(lines) + "\n"


def add_markdown() -> None:
    """Put each page beside its HTML as Markdown, and the list of them."""
    for path in SOURCE.rglob("*.md"):
        shutil.copyfile(path, SITE / path.relative_to(SOURCE))
    (SITE / "llms.txt").write_text(llms_text(), encoding="utf-8")


# What was built


class Page(HTMLParser):
    """What a page names: its own parts, what it links to, and what a browser loads with it."""

    _LOADED = ("img", "script", "iframe", "source", "video", "audio")

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.parts |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and given.get("rel") not in ("canonical", "prev", "next", "edit"):
            self.loaded.append(given.get("href", ""))
        if tag in self._LOADED and "src" in given:
            self.loaded.append(given["src"])


_FETCHED_BY_STYLES = re.compile(r"""url\(\s*['"]?(https?:)?//|@import\s+['"]?(https?:)?//""")


def problems(site: Path) -> Iterator[str]:
    """Links that lead nowhere, and what would be fetched from elsewhere, on all pages of a built site."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(site)
        for target in page.loaded:
            if urlsplit(target).scheme in ("http", "https") or target.startswith("//"):
                yield f"{name} loads {target}"
        for target in [*page.links, *page.loaded]:
            if problem := dead(path, target, site, pages):
                yield f"{name}: {target} {problem}"
    for path in sorted(site.rglob("*.css")):
        if _FETCHED_BY_STYLES.search(path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(site)} loads something from elsewhere"


def dead(path: Path, target: str, site: Path, pages: Mapping[Path, Page]) -> str:
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        return ""
    there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if path.name == "404.html" and parts.path.startswith("/"):
        there = (site / unquote(parts.path).lstrip("/")).resolve()
    if there.is_dir():
        there = there / "index.html"
    if not there.is_file():
        return "does not exist"
    fragment = unquote(parts.fragment)
    if fragment and there in pages and fragment not in pages[there].parts | {"__top"}:
        return f"has no part {fragment}"
    return ""


def main() -> None:
    gather()
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "--quiet",
        "build",
        "--strict",
        "--clean",
        "--config-file",
        str(SETTINGS),
    ]
    # mkdocs-material is kept until 2027, and its successor reads the same mkdocs.yml.
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    if done := subprocess.run(command, cwd=ROOT, env=quiet, check=False).returncode:
        sys.exit(done)
    add_markdown()
    if found := list(problems(SITE.resolve())):
        sys.exit("\n".join(found))
    size = sum(path.stat().st_size for path in SITE.rglob("*") if path.is_file()) / 1e6
    print(f"{len(list(SITE.rglob('*.html')))} pages, {size:.1f} MB: open {SITE / 'index.html'}")


if __name__ == "__main__":
    main()
