"""The fields of the form with which a tool is tried. Frozen values, made by `trial_form`, read by its pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

RAW = "arguments"
"""The name of the one field for everything as JSON."""


class Control(StrEnum):
    """How a value is entered."""

    TEXT = "text"
    INTEGER = "whole number"
    NUMBER = "number"
    BOOLEAN = "yes or no"
    CHOICE = "choice"
    LINES = "one per line"
    JSON = "JSON"


@dataclass(frozen=True)
class FormField:
    """One argument. `key` is its name in the form, `name` that in the arguments."""

    key: str
    name: str
    control: Control
    is_required: bool = False
    description: str = ""
    default: str = ""
    """As somebody would enter it; empty if there is none."""
    choices: tuple[str, ...] = ()
    """Each as JSON."""
    item: Control = Control.TEXT
    """What each line is."""


@dataclass(frozen=True)
class TrialForm:
    """The fields of a tool. Without any, and `is_raw`, all arguments are one JSON object."""

    fields: tuple[FormField, ...] = ()
    is_raw: bool = False


RAW_FORM = TrialForm(is_raw=True)


class WrongEntries(ValueError):
    """What was entered is no value. `problems`: what is wrong, by the key of the field."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__("; ".join(problems.values()))
        self.problems = dict(problems)
