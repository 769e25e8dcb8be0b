"""What of a JSON text is inside strings, without parsing it: a few numpy passes over a chunk of bytes. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcp_optimizer.runtime.lazy_numpy import np

if TYPE_CHECKING:
    import numpy.typing as npt

_QUOTE, _BACKSLASH = 34, 92
_WORD = 64
_DOUBLED = (1, 2, 4, 8, 16, 32)


def quotes_of(chunk: npt.NDArray[np.uint8], first_is_escaped: bool = False) -> tuple[npt.NDArray[np.bool_], bool]:
    """By byte: whether it is a quote that begins or ends a string; and whether the first character of the next chunk is
    escaped.
    """
    escaped, is_escaped = _escaped(chunk, first_is_escaped)
    is_quote = chunk == _QUOTE
    is_quote[escaped[escaped < len(chunk)]] = False
    return is_quote, is_escaped


def in_strings(is_quote: npt.NDArray[np.bool_], begins_inside: bool = False) -> npt.NDArray[np.bool_]:
    """By byte: whether it is in a string, from the opening quote to before the closing one."""
    # Whether so far there was an odd number of quotes. Adding up byte by byte takes four times as long as 64 at a time:
    # first in each word, doubling what each bit knows of those before it, then from word to word.
    packed = np.packbits(is_quote, bitorder="little")
    words = np.zeros(-(-len(is_quote) // _WORD), dtype="<u8")
    words.view(np.uint8)[: len(packed)] = packed
    for bits in _DOUBLED:
        words ^= words << np.uint64(bits)
    is_odd = (words >> np.uint64(_WORD - 1)).astype(np.uint8)
    before = np.cumsum(is_odd, dtype=np.uint8) - is_odd + np.uint8(begins_inside)
    words ^= np.negative((before & 1).astype("<u8"))
    return np.unpackbits(words.view(np.uint8), count=len(is_quote), bitorder="little").view(np.bool_)


def _escaped(chunk: npt.NDArray[np.uint8], first_is_escaped: bool) -> tuple[npt.NDArray[np.signedinteger[Any]], bool]:
    """The positions after an escaping backslash, and whether an escape continues into the next chunk."""
    slashes = np.flatnonzero(chunk == _BACKSLASH)
    first = np.zeros(1 if first_is_escaped else 0, dtype=np.int64)
    if first_is_escaped and slashes.size and slashes[0] == 0:
        slashes = slashes[1:]
    if not slashes.size:
        return first, False
    breaks = np.flatnonzero(np.diff(slashes) != 1)
    begins = slashes[np.concatenate([np.zeros(1, dtype=np.int64), breaks + 1])]
    lasts = slashes[np.concatenate([breaks, np.array([len(slashes) - 1])])]
    after = (lasts + 1)[(lasts - begins) % 2 == 0]
    goes_on = bool(after.size and after[-1] == len(chunk))
    return np.concatenate([first, after]), goes_on
