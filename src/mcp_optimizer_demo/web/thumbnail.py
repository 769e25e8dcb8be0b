"""Draws a small PNG of how a page is laid out: headings as bars, text as lines, links in another color.

Called by the page_thumbnail tool; written with zlib and struct, knows nothing of tools.
"""

import struct
import zlib
from collections.abc import Iterator

from mcp_optimizer_demo.web.site import Block, WebPage

WIDTH, HEIGHT, MARGIN = 160, 200, 10
LINE_HEIGHT, LETTERS_PER_LINE = 4, 70

Color = tuple[int, int, int]
PAPER: Color = (252, 250, 245)
INK: Color = (90, 94, 104)
HEADING: Color = (28, 60, 120)
MARK: Color = (214, 120, 40)
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
TRUE_COLOR = 2


def thumbnail(page: WebPage) -> bytes:
    """The PNG file of the page's layout."""
    rows = [[PAPER] * WIDTH for _ in range(HEIGHT)]
    top = MARGIN
    for block in (Block("heading", page.title, 1), *page.blocks):
        for left, width, height, color in bars(block):
            if top + height > HEIGHT - MARGIN:
                return png(rows)
            fill(rows, left, top, width, height, color)
            top += height + 2
        top += 3
    return png(rows)


def bars(block: Block) -> Iterator[tuple[int, int, int, Color]]:
    """The bars a block is drawn as, each with its left edge, width, height and color."""
    room = WIDTH - 2 * MARGIN
    if block.kind == "heading":
        share = min(1.0, len(block.text) / 40)
        yield MARGIN, max(8, int(room * share)), max(3, 8 - 2 * block.level), HEADING
        return
    indent = 0 if block.kind == "paragraph" else 8
    color = MARK if block.kind == "item" else INK
    letters = len(block.text)
    while letters > 0:
        share = min(1.0, letters / LETTERS_PER_LINE)
        yield MARGIN + indent, max(2, int((room - indent) * share)), LINE_HEIGHT - 2, color
        letters -= LETTERS_PER_LINE


def fill(rows: list[list[Color]], left: int, top: int, width: int, height: int, color: Color) -> None:
    for row in rows[top : top + height]:
        row[left : left + width] = [color] * width


def png(rows: list[list[Color]]) -> bytes:
    """The rows of pixels as a PNG file; each row starts with filter type 0."""
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, TRUE_COLOR, 0, 0, 0)
    pixels = b"".join(b"\x00" + bytes(part for color in row for part in color) for row in rows)
    return PNG_SIGNATURE + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(pixels, 9)) + chunk(b"IEND", b"")


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
