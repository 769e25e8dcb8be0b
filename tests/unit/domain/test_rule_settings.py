"""Rules in a settings file: what they leave out matches everything, and a wrong one is named by its number."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_optimizer.app.part_options import policy_of
from mcp_optimizer.config.settings import Settings, load_settings
from mcp_optimizer.domain.caller import LOCAL_PRINCIPAL, Effect, Risk, Rule
from mcp_optimizer.errors import ConfigurationError

RULE = '[[rules]]\neffect = "deny"\n'


def loaded(folder: Path, text: str) -> Settings:
    file = folder / "settings.toml"
    file.write_text(text)
    return load_settings({}, {}, file)


def test_a_rule_matches_everything_that_it_leaves_out(tmp_path: Path) -> None:
    settings = loaded(tmp_path, f'{RULE}tool = "delete_*"\nrisk = "destructive"\n{RULE}')
    expected = [Rule(Effect.DENY, tool="delete_*", risk=Risk.DESTRUCTIVE), Rule(Effect.DENY)]
    assert [rule.rule for rule in settings.rules] == expected


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ('tol = "x"', "rule 2, 'tol': Extra inputs are not permitted"),
        ('risk = "deadly"', "rule 2, 'risk'"),
        ('tool = "[a"', "rule 2, 'tool': the pattern '[a' has a [ that is not closed"),
        ('tool = ""', "rule 2, 'tool'"),
        ("caller = 7", "rule 2, 'caller'"),
        (f'server = "{"a" * 501}"', "rule 2, 'server': a pattern has at most 500 characters"),
    ],
)
def test_an_error_names_the_rule_by_its_number(tmp_path: Path, wrong: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        loaded(tmp_path, f"{RULE}{RULE}{wrong}\n")
    assert said in str(caught.value)


def test_a_rule_without_an_effect_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="rule 1, 'effect': Field required"):
        loaded(tmp_path, '[[rules]]\ntool = "x"\n')


@pytest.mark.parametrize("wrong", ["rules = 7", 'rules = "deny"', 'rules = ["deny"]'])
def test_rules_that_are_no_list_of_tables_are_an_error(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(ConfigurationError, match="'rules'"):
        loaded(tmp_path, wrong)


@pytest.mark.slow
def test_there_may_be_more_than_ten_thousand_rules(tmp_path: Path) -> None:
    text = "".join(f'{RULE}tool = "tool_{number}"\n' for number in range(10_001))
    decided = policy_of(loaded(tmp_path, text)).decide(LOCAL_PRINCIPAL, "git", "tool_10000", None)
    assert decided.because == "rule 10001 of the settings"


def test_classes_are_given_in_the_order_of_the_file(tmp_path: Path) -> None:
    settings = loaded(tmp_path, '[tool_risks]\n"git__delete_*" = "write"\n"*" = "read"\n')
    assert policy_of(settings).risk("git", "delete_tag", None).risk is Risk.WRITE
    assert policy_of(settings).risk("hub", "delete_tag", None).risk is Risk.READ


def test_a_class_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="tool_risks"):
        loaded(tmp_path, '[tool_risks]\n"git__*" = "harmless"\n')
