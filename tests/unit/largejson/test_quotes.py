"""What is inside strings is found 64 bytes at a time, as if it were looked at byte by byte."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.largejson.spans import in_strings, quotes_of

TEXTS = st.lists(st.sampled_from([b'"', b'"', b"\\", b" ", b"a"]), min_size=1, max_size=300).map(b"".join)


def one_by_one(data: bytes, is_inside: bool) -> tuple[list[bool], bool, bool]:
    found, is_escaped = [], False
    for byte in data:
        is_inside ^= byte == ord('"') and not is_escaped
        is_escaped = byte == ord("\\") and not is_escaped
        found.append(is_inside)
    return found, is_inside, is_escaped


@given(TEXTS, st.booleans())
def test_every_byte_is_known_to_be_inside_or_outside(data: bytes, begins_inside: bool) -> None:
    is_quote, is_escaped = quotes_of(np.frombuffer(data, dtype=np.uint8))
    found = in_strings(is_quote, begins_inside).tolist()
    assert (found, found[-1], is_escaped) == one_by_one(data, begins_inside)


@given(TEXTS, TEXTS)
def test_a_second_chunk_goes_on_where_the_first_one_ended(first: bytes, second: bytes) -> None:
    is_quote, is_escaped = quotes_of(np.frombuffer(first, dtype=np.uint8))
    ends_inside = bool(in_strings(is_quote)[-1])
    is_quote, _ = quotes_of(np.frombuffer(second, dtype=np.uint8), is_escaped)
    whole, _, _ = one_by_one(first + second, False)
    assert in_strings(is_quote, ends_inside).tolist() == whole[len(first) :]
