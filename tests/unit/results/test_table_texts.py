"""Python literals, CSV and Markdown tables are data for `select`; prose is not, whatever it begins with."""

from __future__ import annotations

import pprint
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.results.projection import Projection
from mcp_optimizer.results.result_texts import NO_JSON, data_value
from tests.unit.results.test_limits import gate, id_of, text_result, texts

plain = st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=20)
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
).filter(lambda value: isinstance(value, list | dict))


@given(values)
def test_what_python_prints_is_read_as_it_was(value: Any) -> None:
    assert data_value(repr(value)) == value


def test_tuples_numbers_as_keys_and_several_lines_are_read() -> None:
    assert data_value("[(1, 'a'), (2, None)]") == [[1, "a"], [2, None]]
    assert data_value("[(1,), {2: 3.5}]") == [[1], {"2": 3.5}]
    rows = [{"name": f"it's {number}", "total": number * 1.5} for number in range(30)]
    assert data_value(pprint.pformat(rows)) == rows


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1] is a list",
        "{'a': open('/etc/passwd')}",
        "[datetime.datetime(2024, 1, 1)]",
        "{1, 2}",
        "[" * 100_000,
        "Dear Anna, dear Bob\nthank you, and good bye",
        "a,b\n1,2\n3",
        "a,a\n1,2\n3,4",
        "| a | b |\n|---|---|\n| 1 |",
        "'[1]'",
    ],
)
def test_other_texts_are_no_data(text: str) -> None:
    assert data_value(text) is NO_JSON


def test_tables_have_an_object_for_each_row() -> None:
    wanted = [{"city": "Oslo", "nights": 2, "code": "007"}, {"city": "Porto, old", "nights": 3.5, "code": "x"}]
    assert data_value('city,nights,code\nOslo,2,007\n"Porto, old",3.5,x\n') == wanted
    assert data_value("city\tnights\tcode\nOslo\t2\t007\nPorto, old\t3.5\tx") == wanted
    table = "| city | nights | code |\n| --- | ---: | --- |\n| Oslo | 2 | 007 |\n| Porto, old | 3.5 | x |"
    table = f"Found 2:\n\n{table}\n\nDone."
    assert data_value(table) == wanted


@pytest.mark.slow
@pytest.mark.parametrize(
    "sent",
    [
        repr([{"city": f"Town {number}", "nights": number} for number in range(2_000)]),
        "city,nights\n" + "\n".join(f"Town {number},{number}" for number in range(2_000)),
        "| city | nights |\n|---|---|\n" + "\n".join(f"| Town {number} | {number} |" for number in range(2_000)),
    ],
    ids=["a Python literal", "CSV", "a Markdown table"],
)
async def test_select_works_on_a_result_and_on_what_was_kept_of_it(sent: str) -> None:
    async with gate() as opened:
        found = await opened.pass_through(text_result(sent), select=Projection("[?nights > `1997`].city"))
        assert texts(found)[0] == '["Town 1998","Town 1999"]'
        again = await opened.results.read(id_of(found), select="[-1].nights")
        assert texts(again)[0] == "1999"
