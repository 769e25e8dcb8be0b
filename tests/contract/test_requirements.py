"""Every requirement of the source documents has a test that names it, and no test names any other.

`requirements.toml` lists them; a test names them in `@pytest.mark.requirement`.
"""

from __future__ import annotations

from collections import Counter

from tests.contract.test_docs import make_docs

DOCS = make_docs()
REQUIRED = [one for part in DOCS.requirements().values() for one in part]
PROVED = DOCS.proofs()


def test_every_requirement_is_named_by_a_test() -> None:
    assert [one.id for one in REQUIRED if one.id not in PROVED] == []


def test_no_test_names_a_requirement_that_is_not_in_the_register() -> None:
    known = {one.id for one in REQUIRED}
    assert {name: tests for name, tests in PROVED.items() if name not in known} == {}


def test_no_id_is_given_twice_and_each_has_a_statement() -> None:
    assert [name for name, count in Counter(one.id for one in REQUIRED).items() if count > 1] == []
    assert [one.id for one in REQUIRED if not one.requires.endswith(".")] == []


def test_the_ids_of_the_source_documents_are_all_there() -> None:
    known = {one.id for one in REQUIRED}
    wanted = {f"A{number}" for number in range(1, 10)} | {f"B{number}" for number in range(1, 9)}
    wanted |= {f"C{number}" for number in range(1, 8)} | {f"FR-00{number}" for number in range(1, 10)}
    wanted |= {f"SC-00{number}" for number in range(1, 7)} | {"US1.1", "US1.2", "US1.3"}
    wanted |= {f"EC-{number}" for number in range(1, 5)} | {f"R-{number}" for number in range(1, 6)}
    assert wanted - known == set()
