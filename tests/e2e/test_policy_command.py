"""`policy test` as a user runs it: explains a decision, and what would change it."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.running import command

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
