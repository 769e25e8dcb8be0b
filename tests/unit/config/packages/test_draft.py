"""A draft and its answers become an entry that is read back to the same command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.config.packages.draft import (
    Argument,
    Draft,
    Gap,
    InputFormat,
    WantedInput,
    entry_of,
    wanted_of,
    word,
    words,
)
from mcp_optimizer.config.serverfile.file_edits import EMPTY, with_entry
from mcp_optimizer.config.serverfile.parser import parse_server_file
from mcp_optimizer.errors import ConfigurationError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30).filter(lambda text: "${" not in text)
NAMES = st.from_regex(r"[A-Z_][A-Z0-9_]{0,10}", fullmatch=True)


@pytest.mark.slow
@given(
    st.from_regex(r"[A-Za-z0-9_-]{1,20}", fullmatch=True),
    TEXT.filter(bool),
    st.lists(TEXT, max_size=5),
    st.dictionaries(NAMES, TEXT, max_size=4),
)
def test_what_is_written_is_read_back_as_the_same_command(
    name: str, command: str, args: list[str], env: dict[str, str]
) -> None:
    draft = Draft(name, command=command, args=words(args), env={key: (value,) for key, value in env.items()})
    text = with_entry(EMPTY, name, entry_of(draft, {}))
    [spec] = parse_server_file(text, Path("mcp.json"), {})
    assert (spec.name, spec.command, spec.args, spec.env, spec.problem) == (name, command, tuple(args), env, "")


def test_gaps_are_filled_repeated_and_left_out() -> None:
    draft = Draft(
        "x",
        command="run",
        args=(
            word("fixed"),
            Argument((Gap("folder"),), flag="--folder"),
            Argument(("level=", Gap("level"))),
            Argument((Gap("verbose"),), flag="--verbose", is_switch=True),
        ),
        env={"TOKEN": (Gap("token"),), "MODE": ("plain",)},
    )
    answers = {"folder": ("/a", "/b"), "verbose": ("true",)}
    assert entry_of(draft, answers) == {
        "command": "run",
        "args": ["fixed", "--folder", "/a", "--folder", "/b", "--verbose"],
        "env": {"MODE": "plain"},
    }


def test_a_container_gets_the_names_of_variables_and_never_their_values() -> None:
    args = (*words(["run", "-i"]), word("image:1"), word("serve"))
    draft = Draft("x", command="docker", args=args, env_at=2, env={"A": (Gap("a"),), "B": (Gap("b"),)})
    entry = entry_of(draft.with_values({"C": "3"}, {}), {"a": ("${secret:x/A}",)})
    assert entry["args"] == ["run", "-i", "-e", "A", "-e", "C", "image:1", "serve"]
    assert entry["env"] == {"A": "${secret:x/A}", "C": "3"}


def test_an_address_with_a_gap_needs_its_answer() -> None:
    draft = Draft("x", url=("https://", Gap("tenant"), ".example.com/mcp"), headers={"X-Key": (Gap("key"),)})
    with pytest.raises(ConfigurationError, match="needs tenant"):
        entry_of(draft, {})
    assert entry_of(draft, {"tenant": ("acme",)}) == {"url": "https://acme.example.com/mcp"}


def test_values_of_the_user_replace_questions() -> None:
    wanted = {"A": WantedInput("A", is_required=True), "B": WantedInput("B", is_required=True)}
    draft = Draft("x", command="run", env={"A": (Gap("A"),), "B": (Gap("B"),)}, wanted=wanted)
    left = draft.with_values({"A": "1"}, {})
    assert [one.key for one in left.missing({})] == ["B"]
    with pytest.raises(ConfigurationError, match="no headers"):
        draft.with_values({}, {"X": "1"})
    with pytest.raises(ConfigurationError, match="no environment"):
        Draft("x", url=("https://a.example",)).with_values({"A": "1"}, {})


@pytest.mark.parametrize(
    ("wanted", "value", "problem"),
    [
        (WantedInput("x", choices=("a", "b")), "c", "one of a, b"),
        (WantedInput("x", format=InputFormat.NUMBER), "nan!", "a number"),
        (WantedInput("x", format=InputFormat.NUMBER, minimum=2), "1", "at least 2"),
        (WantedInput("x", format=InputFormat.NUMBER, minimum=2), "nan", "at least 2"),
        (WantedInput("x", format=InputFormat.NUMBER, maximum=2), "3", "at most 2"),
        (WantedInput("x", format=InputFormat.BOOLEAN), "yes", "true or false"),
        (WantedInput("x"), "a\0b", "null"),
        (WantedInput("x", format=InputFormat.NUMBER), "${PORT}", ""),
        (WantedInput("x"), "anything", ""),
    ],
)
def test_an_answer_is_checked_without_being_quoted(wanted: WantedInput, value: str, problem: str) -> None:
    found = wanted.problem(value)
    assert problem in found
    assert bool(found) == bool(problem)


def test_an_input_is_read() -> None:
    ours = wanted_of("k", {"isRequired": True, "isSecret": True, "default": 5, "format": "number"})
    assert (ours.is_required, ours.is_secret, ours.default, ours.format) == (True, True, ("5",), InputFormat.NUMBER)
    theirs = wanted_of("k", {"type": "named", "format": "filepath", "isRepeated": True, "default": ["/a", "/b"]})
    assert (theirs.format, theirs.is_list, theirs.default) == (InputFormat.PATH, True, ("/a", "/b"))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.slow
@given(
    st.dictionaries(st.sampled_from("type format default choices isRequired min max description".split()), json_values)
)
def test_any_input_is_read_or_refused(said: dict[str, object]) -> None:
    try:
        found = wanted_of("key", said)
    except ConfigurationError:
        return
    assert "${" not in json.dumps([found.default, found.choices])


@pytest.mark.parametrize("pieces", [("$", Gap("b")), (Gap("a"), Gap("b")), (Gap("a"), "{secret:x}"), ("x=$", Gap("c"))])
def test_parts_that_are_harmless_alone_cannot_make_up_a_variable(pieces: tuple[str | Gap, ...]) -> None:
    answers = {"a": ("$",), "b": ("{secret:x}",), "c": ("HOME",)}
    for draft in (
        Draft("x", command="run", args=(Argument(pieces),)),
        Draft("x", command="run", env={"A": pieces}),
        Draft("x", url=("https://x.example/?k=", *pieces)),
        Draft("x", url=("https://x.example/",), headers={"A": pieces}),
    ):
        with pytest.raises(ConfigurationError, match="Joined"):
            entry_of(draft, answers)
