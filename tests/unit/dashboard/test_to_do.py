"""Each command that a sentence names becomes a button or link for visitors who may do what it does."""

from __future__ import annotations

import pytest

from mcp_optimizer.config.settings import load_settings
from mcp_optimizer.dashboard.charts import label_lines
from mcp_optimizer.dashboard.overview_pages import actions_of
from mcp_optimizer.dashboard.page_parts import who_asked
from mcp_optimizer.dashboard.settings_page import rows_of, settings_page
from mcp_optimizer.dashboard.visitor import Visitor
from mcp_optimizer.domain.caller import LOCAL_PRINCIPAL
from mcp_optimizer.domain.events import Event, EventKind


@pytest.mark.parametrize(
    ("line", "address", "label"),
    [
        ("`mail` wants a login: `mcp-optimizer login mail`.", 'action="/logins/mail"', "Log in to mail"),
        ("2 tools wait: `mcp-optimizer trust diff 'a b'` shows.", 'href="/trust?server=a+b"', "Review a b"),
        ("`x` does not run. `mcp-optimizer doctor x`.", 'action="/servers/x/restart"', "Restart x"),
        ("If one is enough, `mcp-optimizer disable two` saves.", 'action="/servers/two/disable"', "Disable two"),
        ("`mcp-optimizer disable git/push` turns it off.", 'name="tool" value="push"', "Disable git/push"),
        ("`mcp-optimizer tools git` lists its tools.", 'href="/catalog?server=git"', "Tools of git"),
        ("Why: `mcp-optimizer audit --tool 'a b'`.", 'href="/audit?tool=a+b&amp;since=30d"', "Calls of a b"),
        (
            "Which rule: `mcp-optimizer policy test push --server git --caller NAME`.",
            'href="/rules?tool=push&amp;server=git"',
            "Rules for push",
        ),
        (
            "What is shown: `mcp-optimizer show git/push_all`.",
            'href="/tools/git/push_all"',
            "What models see of push_all",
        ),
    ],
)
def test_a_command_is_a_button_that_does_the_same(line: str, address: str, label: str) -> None:
    made = "".join(map(str, actions_of(line, can_manage=True)))
    assert address in made
    assert label in made


@pytest.mark.parametrize(
    "line",
    [
        "`mcp-optimizer disable git/TOOL` turns one off.",
        "`mcp-optimizer disable 'half",
        "`mcp-optimizer remove git`",
        "`rm -rf`",
        "`mcp-optimizer login`",
        "`mcp-optimizer audit --since 7d`",
        "`mcp-optimizer show push`",
    ],
)
def test_nothing_else_is_a_button(line: str) -> None:
    assert actions_of(line, can_manage=True) == []


def test_a_visitor_who_may_not_gets_links_only() -> None:
    lines = ("`mcp-optimizer login mail`", "`mcp-optimizer doctor mail`", "`mcp-optimizer disable mail`")
    made = "".join(str(action) for line in lines for action in actions_of(line, can_manage=False))
    assert "<form" not in made
    assert 'href="/servers/mail"' in made


def test_a_name_on_the_map_is_divided_at_its_joints_or_left_out() -> None:
    assert label_lines("jira_create_issue", 8, 3) == ["jira_", "create_", "issue"]
    assert label_lines("jira_create_issue", 30, 1) == ["jira_create_issue"]
    assert label_lines("jira_create_issue", 5, 9) == []
    assert label_lines("fill", 8, 1) == ["fill"]


def test_the_live_feed_names_a_caller_that_has_a_key() -> None:
    event = Event(1.0, EventKind.CALL, "s", client="cursor")
    assert who_asked(event) == "cursor"
    assert who_asked(event._replace(caller="ci")) == "cursor, ci"


def test_the_page_of_settings_shows_no_secret() -> None:
    settings = load_settings({"encoder_key": "very-secret", "find_limit": 7}, environment={})
    page = settings_page(rows_of(settings), "1", Visitor(LOCAL_PRINCIPAL))
    assert "very-secret" not in page
    changed = page.partition("All settings")[0]
    assert "find_limit" in changed
    assert "not shown" in changed
    assert "find_tokens" not in changed
