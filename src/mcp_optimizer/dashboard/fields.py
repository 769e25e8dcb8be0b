"""Parts of the pages about callers, rules, trust and audit: names from others, moments, fields and buttons. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from mcp_optimizer.dashboard.html import Child, Html, el
from mcp_optimizer.dashboard.parts import moment, shortened
from mcp_optimizer.domain.hidden_text import with_hidden_shown
from mcp_optimizer.runtime.terminal_text import span

LONGEST_NAME = 120


def named(text: str, most: int = LONGEST_NAME) -> str:
    """A name that somebody else chose: nothing in it is hidden, and it takes a limited room."""
    return shortened(with_hidden_shown(text[: most + 1]), most)


def word(text: str) -> Html:
    """One of our own words, which a narrow column must not break."""
    return el("span", text, class_="word")


def ago(at_ms: int | None, now_ms: int, never: str = "never") -> Child:
    """How long ago, or ahead, a moment is."""
    if at_ms is None:
        return never
    seconds = (now_ms - at_ms) / 1_000
    told = f"{span(seconds)} ago" if seconds >= 0 else f"in {span(-seconds)}"
    return time_shown(at_ms, told)


def time_shown(at_ms: int, told: str = "") -> Html:
    """A moment, in words or in UTC."""
    # Within what a calendar has: a moment may come from a file that somebody changed.
    at = max(0.0, min(at_ms / 1_000, 253_402_300_000.0))
    exact = f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"
    return el("time", told or exact, datetime=moment(at), title=f"{exact} UTC")


def field(label: str, name: str, *control: Child, note: str = "") -> Html:
    """A label, and what it is about."""
    told = el("span", note, class_="note", id=f"{name}-note") if note else None
    return el("p", el("label", label, for_=name), *control, told)


def text_field(label: str, name: str, value: str = "", note: str = "", **given: object) -> Html:
    about = f"{name}-note" if note else None
    made = el(
        "input", id=name, name=name, type="text", value=value, autocomplete="off", aria_describedby=about, **given
    )
    return field(label, name, made, note=note)


def text_area(name: str, value: str = "", **given: object) -> Html:
    """For several lines. Browsers drop the first line break, so there is one that is not part of the value."""
    return el("textarea", f"\n{value}", id=name, name=name, autocomplete="off", spellcheck="false", **given)


def choice(label: str, name: str, options: Sequence[tuple[str, str]], value: str = "", note: str = "") -> Html:
    """`options`: what is sent, and what people read."""
    made = [el("option", told, value=sent, selected=sent == value) for sent, told in options]
    return field(label, name, el("select", made, id=name, name=name), note=note)


def button(label: str, about: str, action: str, *fields: Child, is_main: bool = False) -> Html:
    """A form that is one button. Several buttons of a page have its label; who cannot see the page needs `about`."""
    made = el("button", label, el("span", f" – {about}", class_="unseen"), class_="main" if is_main else None)
    return el("form", *fields, made, action=action, method="post")


def confirmed(label: str, about: str, question: str, action: str, *fields: Child) -> Html:
    """A button for what cannot be undone, behind a first click."""
    summary = el("summary", label, el("span", f" – {about}", class_="unseen"))
    yes = button(f"Yes, {label.lower()}", about, action, *fields)
    return el("details", summary, el("p", question, class_="note"), yes, class_="confirm")


def hidden(name: str, value: str) -> Html:
    return el("input", type="hidden", name=name, value=value)
