"""What a stored script may be called and take: names and texts that mean to a model what a person sees."""

from __future__ import annotations

import pytest

from mcp_optimizer.domain.stored_script import ParameterType, ScriptParameter, StoredScript, UsedTool
from mcp_optimizer.errors import InvalidRequest
from mcp_optimizer.scripts.saving import check_description, check_name, check_source, parameter_of


@pytest.mark.parametrize("name", ["open_cards", "Weekly-Report2", "x", "a" * 48])
def test_a_plain_name_is_taken(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    "name",
    ["", " ", "1st", "_x", "a b", "a/b", "../x", "kanban__list", "a" * 49, "ünicode", "x\n", "x\u200b", "x;drop", "-x"],
)
def test_any_other_name_is_refused_with_what_is_allowed(name: str) -> None:
    with pytest.raises(InvalidRequest, match="begins with a letter"):
        check_name(name)


@pytest.mark.parametrize("name", ["find_tool", "Call_Tool", "read-result"])
def test_the_gateways_own_names_are_not_given_away(name: str) -> None:
    with pytest.raises(InvalidRequest, match="the gateway has a tool of that name"):
        check_name(name)


@pytest.mark.parametrize("text", ["", "  ", "two\nlines", "x" * 301, "\x1b[31mred", "hid\u200bden", "tag\U000e0041"])
def test_a_description_is_one_visible_line(text: str) -> None:
    with pytest.raises(InvalidRequest):
        check_description(text, 300)
    check_description("Cards that nobody moved for a week, by owner", 300)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("\n \n", "empty"),
        ("x" * 101, "101 characters; 100 are allowed"),
        ("a\nb\0", "Line 2 of the script has a control character"),
        ("a = '\ud800'", "control character"),
        ("a\rb", "control character"),
        ("a = 1 # \u202e", "hidden characters"),
    ],
)
def test_a_source_that_shows_something_else_than_it_is_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        check_source(text, 100)


def test_parameters_are_read_as_people_write_them() -> None:
    assert parameter_of("board:integer") == ScriptParameter("board", ParameterType.INTEGER)
    assert parameter_of("board:int=3") == ScriptParameter("board", ParameterType.INTEGER, "3")
    assert parameter_of("query:str=a=b:c") == ScriptParameter("query", ParameterType.STRING, '"a=b:c"')
    assert parameter_of("query:string=") == ScriptParameter("query", ParameterType.STRING, '""')
    assert parameter_of('tags:list=["a"]') == ScriptParameter("tags", ParameterType.ARRAY, '["a"]')
    assert parameter_of("anything=null") == ScriptParameter("anything", ParameterType.ANY, "null")
    assert parameter_of("deep:bool=true") == ScriptParameter("deep", ParameterType.BOOLEAN, "true")
    assert parameter_of("share:float=1") == ScriptParameter("share", ParameterType.NUMBER, "1")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("board:tensor", "unknown type. Types: string, integer"),
        ("board:integer=x", "is not JSON"),
        ("board:integer=true", "is not of the type integer"),
        ("board:integer=1.5", "is not of the type integer"),
        ("share:number=NaN", "is not JSON"),
        ("deep:object=[]", "is not of the type object"),
        ("deep:array=" + "[" * 100_000, "is not JSON"),
        ("", "becomes a variable"),
        ("a-b:int", "becomes a variable"),
        ("__class__", "becomes a variable"),
        ("ünicode", "becomes a variable"),
        ("a" * 65, "becomes a variable"),
        ("import", "a word of Python"),
        ("None", "a word of Python"),
    ],
)
def test_a_parameter_that_cannot_be_a_variable_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said) as caught:
        parameter_of(text)
    assert len(str(caught.value)) < 500


def test_its_parameters_are_its_schema_and_defaults_are_filled_in() -> None:
    script = StoredScript(
        "x",
        "1",
        "One",
        tuple(map(parameter_of, ("board:int", "most:int=20", "any", "owner=null"))),
        (UsedTool("kanban", "list_cards", "1"), UsedTool("kanban", "move_card", "2", may_change=True)),
    )
    assert script.input_schema == {
        "type": "object",
        "properties": {
            "board": {"type": "integer"},
            "most": {"type": "integer", "default": 20},
            "any": {},
            "owner": {"default": None},
        },
        "additionalProperties": False,
        "required": ["board", "any"],
    }
    assert script.with_defaults({"board": 1, "most": 5}) == {"board": 1, "most": 5, "owner": None}
    assert script.may_change == ("kanban__move_card",)
    assert [str(one) for one in script.parameters] == ["board:integer", "most:integer=20", "any:any", "owner:any=null"]
