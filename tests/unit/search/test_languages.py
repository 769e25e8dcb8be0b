"""Requests in six other languages are searched in English; English ones stay as they are."""

from __future__ import annotations

from importlib import resources

import pytest

from mcp_optimizer.catalog.tool_forms import Detail
from mcp_optimizer.search.languages import in_english, translated
from mcp_optimizer.search.words import words
from tests.unit.catalogs import gateway_over, mcp_tool, running


@pytest.mark.parametrize(
    ("request_", "english"),
    [
        ("lege ein Ticket in Jira an", "create ticket Jira"),
        ("loesche die Datei config.yaml", "delete file config.yaml"),
        ("Logdatei anzeigen", "show logs file"),
        ("crea una incidencia en Jira", "create issue Jira"),
        ("¿qué hora es en Tokio?", "what time is it Tokio ?"),
        ("supprime les newsletters de ma boite de reception", "delete newsletter inbox"),
        ("fais une capture d'écran de la page", "take screenshot page"),
        ("adiciona um evento ao calendário na sexta-feira", "add event calendar Friday"),
        ("ログインボタンをクリックして", "click login button"),
        ("在Slack的#general频道发布一条消息", "post Slack #general channel message"),
        ("merke dir 'la casa de papel'", "remember 'la casa de papel'"),
    ],
)
def test_what_a_request_asks_for_is_said_in_english(request_: str, english: str) -> None:
    assert in_english(request_) == english


@pytest.mark.parametrize(
    "request_",
    [
        "create an issue",
        "weather in Los Angeles and El Paso",
        "directions from San Jose to La Paz",
        "what was in the folder",
        "del old_lights, plus the scene",
        "translate 'guten Morgen' into Spanish",
        "fill the input field with the value '测试数据'",
        "git_log",
        "server",
        "",
        "¿",
    ],
)
def test_an_english_request_stays_as_it_is(request_: str) -> None:
    assert translated(request_) is None


def test_a_request_to_delete_is_one_in_every_language_and_others_are_not() -> None:
    asked = [
        "lösche die Karte",
        "borra la tarjeta",
        "supprime la carte",
        "apaga o cartão",
        "カードを削除して",
        "删除卡片",
    ]
    assert {in_english(request) for request in asked} == {"delete card"}
    assert "delete" not in in_english("crea una incidencia en Jira")


async def test_a_request_finds_the_tool_that_its_english_form_finds() -> None:
    gateway = await gateway_over(
        running("jira", mcp_tool("jira_create_issue", "Create an issue"), mcp_tool("jira_delete_issue", "Delete it")),
        running("files", mcp_tool("read_file", "Read a file"), mcp_tool("write_file", "Write a file")),
    )

    def first(request: str) -> str:
        return gateway.find(request, detail=Detail.SIGNATURE).tools[0].tool.name

    assert first("crear una incidencia en Jira") == "jira_create_issue"
    assert first("Jiraに課題を作成して") == "jira_create_issue"
    assert first("lies die Datei notizen.txt") == "read_file"


async def test_tools_that_speak_the_language_of_the_request_are_found_by_its_own_words() -> None:
    gateway = await gateway_over(
        running("maps", mcp_tool("geo", "查询城市天气预报"), mcp_tool("text", "根据关键词搜索地点的餐馆")),
        running("weather", mcp_tool("forecast", "Weather forecast of a place")),
    )
    assert gateway.find("查询城市天气", detail=Detail.SIGNATURE).tools[0].tool.name == "geo"


def test_the_lexicon_has_six_columns_and_no_word_twice_in_a_row() -> None:
    text = (resources.files("mcp_optimizer") / "search" / "lexicon.txt").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line and line[0] not in "#["]
    assert len(rows) > 200
    for row in rows:
        columns = row.partition("=")[2].split("|")
        assert len(columns) == 6, row
        assert all(len(column.split()) == len(set(column.split())) for column in columns), row


@pytest.mark.parametrize("piece", ["a-", "'", "el la ", "的", "ö", '"', "„«「", "lege ", "an "])
def test_a_hostile_request_takes_no_time(piece: str) -> None:
    request = piece * (2_000 // len(piece))
    in_english(request)
    assert len(words(in_english(request))) <= len(words(request)) * 2 + 2
