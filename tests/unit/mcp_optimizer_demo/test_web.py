"""The web server searches, reads, summarizes, compares and draws the bundled pages."""

import base64
import struct
import zlib

import mcp_types as types

from mcp_optimizer_demo.web.site import load_site, sentences_of
from tests.unit.mcp_optimizer_demo.calling import Caller, text_of


def test_every_link_between_the_pages_leads_somewhere() -> None:
    site = load_site()
    assert len(site.pages) == 25
    for page in site.pages.values():
        internal = [link for link in page.links if link.is_internal]
        assert internal, page.slug
        for link in internal:
            assert site.page(link.url) != page


async def test_search_puts_the_fitting_page_first_with_a_fitting_sentence(web: Caller) -> None:
    found = await web("web_search", query="longitude at sea", limit=2)
    assert len(found["results"]) == 2
    assert found["results"][0]["url"] == "https://pages.example/clocks"
    assert "longitude" in found["results"][0]["snippet"]
    assert (await web("web_search", query="zeppelin"))["results"] == []


async def test_lists_with_a_limit_say_whether_there_is_more(web: Caller) -> None:
    assert (await web("web_search", query="longitude at sea", limit=2))["truncated"]
    assert not (await web("web_search", query="zeppelin"))["truncated"]
    assert (await web("related_pages", url="bees", limit=3))["truncated"]
    assert (await web("count_words", url="moon", top=3))["truncated"]
    assert (await web("compare_pages", url="coffee", other_url="tea"))["truncated"]


async def test_a_page_can_be_read_in_parts(web: Caller) -> None:
    whole = await web("fetch_page", url="https://pages.example/bees")
    first = await web("fetch_page", url="bees", max_characters=200)
    rest = await web("fetch_page", url="bees", start=200)
    assert whole["is_complete"]
    assert not first["is_complete"]
    assert first["content"] + rest["content"] == whole["content"]
    assert "](" not in (await web("fetch_page", url="bees", format="text"))["content"]


async def test_a_summary_keeps_sentences_of_the_page_in_their_order(web: Caller) -> None:
    summary = await web("summarize_page", url="tides", sentences=3)
    sentences = sentences_of(load_site().page("tides"))
    kept = [sentence for sentence in sentences if sentence in summary["summary"]]
    assert summary["summary"] == " ".join(kept)
    assert (len(kept), summary["sentences_total"]) == (3, len(sentences))


async def test_outline_links_and_finding_follow_the_page(web: Caller) -> None:
    outline = await web("page_outline", url="bees")
    assert [entry["heading"] for entry in outline["outline"]] == [
        "One colony, one queen",
        "A working life",
        "The dance",
    ]
    links = await web("extract_links", url="libraries", kind="external")
    assert [link["url"] for link in links["links"]] == ["https://example.org/five-laws"]
    assert "https://pages.example/chess" in links["linked_from"]
    assert (await web("find_in_page", url="tides", phrase="Moon"))["total"] == 3
    assert (await web("find_in_page", url="tides", phrase="Moon", match_case=True))["total"] == 0


async def test_likeness_is_the_same_both_ways_and_whole_with_itself(web: Caller) -> None:
    there = await web("compare_pages", url="coffee", other_url="tea")
    back = await web("compare_pages", url="tea", other_url="coffee")
    assert there["similarity"] == back["similarity"] > 0
    assert there["only_in_first"] == back["only_in_second"]
    assert (await web("compare_pages", url="tea", other_url="tea"))["similarity"] == 1
    related = await web("related_pages", url="bees", limit=3)
    assert {page["url"] for page in related["related"]} & {"https://pages.example/honey"}


async def test_metadata_and_word_counts_agree(web: Caller) -> None:
    metadata = await web("page_metadata", url="moon")
    counts = await web("count_words", url="moon", top=3)
    assert metadata["word_count"] == counts["words"]
    assert metadata["author"] == "Kenji Mori"
    assert counts["most_frequent"][0]["word"] == "moon"


async def test_a_wrong_address_says_how_to_find_one(web: Caller) -> None:
    message = await web.fault("fetch_page", url="https://pages.example/zeppelins")
    assert "There is no page at 'https://pages.example/zeppelins'" in message
    assert "web_search" in message


async def test_the_thumbnail_is_a_valid_png_that_differs_from_page_to_page(web: Caller) -> None:
    result = await web.result("page_thumbnail", url="bees")
    image = result.content[0]
    assert isinstance(image, types.ImageContent)
    assert image.mime_type == "image/png"
    data = base64.b64decode(image.data, validate=True)
    assert '"width":160,"height":200' in text_of(result)
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    chunks = dict(png_chunks(data))
    width, height, depth, color_type = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert (width, height, depth, color_type) == (160, 200, 8, 2)
    assert len(zlib.decompress(chunks[b"IDAT"])) == height * (1 + 3 * width)
    other = (await web.result("page_thumbnail", url="chess")).content[0]
    assert isinstance(other, types.ImageContent)
    assert other.data != image.data


def png_chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    """The chunks of a PNG file, whose checksums must be correct."""
    chunks, at = [], 8
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack_from(">I", data, at + 8 + length)[0] == zlib.crc32(kind + body)
        chunks.append((kind, body))
        at += 12 + length
    assert chunks[-1][0] == b"IEND"
    return chunks
