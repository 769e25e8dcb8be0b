"""`policy test` as a user runs it: explains a decision, and what would change it."""

from __future__ import annotations

from pathlib import Path

from mcp_optimizer.config.settings import load_settings
from mcp_optimizer.domain.caller import Risk
from tests.e2e.made_keys import made_key
from tests.e2e.running import Finished, command

RULES = """
database = "none"
encoder = "none"
demo = true

[[rules]]
effect = "ask"
tool = "delete_*"
reason = "Deleting is for good."

[[rules]]
effect = "deny"
caller = "key:guest"
"""


async def test_a_decision_is_explained_with_its_class_its_rule_and_what_would_change_it(tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text(RULES)
    asked = (await command("policy", "test", "delete_card", "--settings", settings, "--json", cold=True)).json
    assert (asked["effect"], asked["rule"], asked["reason"]) == ("ask", 1, "Deleting is for good.")
    assert (asked["risk"], asked["caller"]) == ("destructive", "local")
    assert asked["would_change"] == [
        f"a rule before rule 1 with effect = 'allow', server = '{asked['server']}', tool = 'delete_card'"
    ]
    flags = ("--caller", "key:guest", "--caller-risk", "read", "--settings", settings)
    guest = await command("policy", "test", "delete_card", *flags)
    assert "deny: delete_card" in guest.out
    assert "the caller may only read" in guest.out
    unknown = await command("policy", "test", "delete_kard", "--settings", settings)
    assert unknown.code == 1
    assert "delete_card" in unknown.err


async def test_a_rule_with_a_wrong_key_is_an_error_that_names_the_rule(tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text(f'{RULES}tol = "x"\n')
    done = await command("policy", "test", "delete_card", "--settings", settings)
    assert done.code == 2
    assert "rule 2, 'tol'" in done.err


CALLERS = """
encoder = "none"
demo = true

[[rules]]
effect = "deny"
caller = "key:ada"

[[rules]]
effect = "deny"
caller = "corp:eve"

[[token_issuers]]
name = "corp"
issuer = "https://login.example"
"""


async def test_a_caller_is_who_the_rules_mean_and_an_unknown_one_is_an_error(tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text(CALLERS)
    await made_key("ada", Risk.DESTRUCTIVE)
    await made_key("eve", Risk.DESTRUCTIVE)

    # The demo has a database of its own, in which these keys are not.
    options = ["--settings", settings, "--database", load_settings().database_place]

    async def test(caller: str, *more: str) -> Finished:
        return await command("policy", "test", "list_tables", *options, "--caller", caller, *more)

    for given, meant, effect in (
        ("ada", "key:ada", "deny"),
        ("key:ada", "key:ada", "deny"),
        ("key:eve", "key:eve", "allow"),
        ("corp:eve", "corp:eve", "deny"),
        ("corp:somebody", "corp:somebody", "allow"),
        ("local", "local", "allow"),
    ):
        found = (await test(given, "--json")).json
        assert (found["caller_given"], found["caller"], found["effect"]) == (given, meant, effect)
    assert "ada is key:ada" in (await test("ada")).out
    both = await test("eve")
    assert (both.code, both.out) == (2, "")
    assert "may be key:eve, corp:eve" in both.err
    for unknown in ("bob", "key:bob", "Ada", "key:", "*", "key:*", "corp:", "\x1b[2Jada", ":ada"):
        done = await test(unknown)
        assert (done.code, done.out) == (2, ""), unknown
        assert "There is no caller" in done.err
        assert "'key:ada'" in done.err
        assert "key:NAME or corp:NAME" in done.err
        assert "\x1b" not in done.err
    assert (await test("key:bob", "--caller-risk", "read", "--json")).json["caller"] == "key:bob"
