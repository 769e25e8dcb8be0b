"""Random configuration files: values, comments, order, indentation and line ends."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

NAMES = ["a", "b", "c", "mcpServers", "with space", 'quo"te', "ünï", "x.y"]
COMMENTS = ["", " one", " {not: json}", ' "quoted', " a, b ]", "#//"]
NEW_NAMES = ["a", "mcpServers", "new", "with space", "0", "true"]


def paths() -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(NEW_NAMES), min_size=1, max_size=3)


def values() -> st.SearchStrategy[Any]:
    plain = st.sampled_from(["x", "", "a b", "1", "true", "é", "# no", "multi\nline", 0, 7, True, False, 1.5])
    return st.recursive(
        plain,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
        max_leaves=6,
    )


def objects() -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(NAMES), values(), max_size=4)


@st.composite
def json_texts(draw: st.DrawFn) -> str:
    is_tall, unit = draw(st.booleans()), draw(st.sampled_from(["  ", "    ", "\t", ""]))
    has_trailing = draw(st.booleans())

    def gap(depth: int) -> str:
        note = draw(st.sampled_from(COMMENTS))
        kind = draw(st.integers(0, 5))
        shown = f" /*{note}*/ " if kind == 0 else f" //{note}\n" if kind == 1 and is_tall else ""
        return shown + ("\n" + unit * depth if is_tall else draw(st.sampled_from(["", " "])))

    def shown(value: Any, depth: int) -> str:
        if not isinstance(value, dict | list):
            return json.dumps(value, ensure_ascii=draw(st.booleans()))
        if isinstance(value, dict):
            parts = [f"{json.dumps(key)}:{gap(depth)}{shown(item, depth + 1)}" for key, item in value.items()]
        else:
            parts = [shown(item, depth + 1) for item in value]
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        if not parts:
            return opening + draw(st.sampled_from(["", " ", "  ", "\n", " \n  " if is_tall else "\t"])) + closing
        text = opening + "".join(
            gap(depth + 1) + part + gap(depth + 1) * draw(st.integers(0, 1)) + ("," if number + 1 < len(parts) else "")
            for number, part in enumerate(parts)
        )
        return text + ("," if has_trailing and draw(st.booleans()) else "") + gap(depth) + closing

    text = gap(0) * draw(st.integers(0, 1)) + shown(draw(objects()), 0) + draw(st.sampled_from(["", "\n", " // end\n"]))
    return _finished(draw, text)


@st.composite
def toml_texts(draw: st.DrawFn) -> str:
    from mcp_optimizer.config.textfiles.toml_edits import with_value

    document = draw(objects())
    lines: list[str] = []
    for key, value in sorted(document.items(), key=lambda item: isinstance(item[1], dict)):
        block = with_value("", [key], value).rstrip("\n").split("\n")
        for line in block:
            if note := draw(st.sampled_from(COMMENTS)):
                lines.append(f"#{note}")
            lines.append(line + (draw(st.sampled_from(["", "", " # note"]))))
            lines.extend([""] * draw(st.integers(0, 2)))
        if isinstance(value, dict) and draw(st.booleans()):
            lines += [draw(st.sampled_from(["", "  "])) + block[0][:-1] + '."sub tables"]', 'k = """\n[x]\n"""']
    return _finished(draw, "\n".join(lines) + draw(st.sampled_from(["", "\n", "\n\n", "\n# end"])))


@st.composite
def yaml_texts(draw: st.DrawFn) -> str:
    import yaml

    document = draw(objects())
    if not document:
        return draw(st.sampled_from(["", "# only\n", "---\n", "# no end"]))
    shown = yaml.safe_dump(document, indent=draw(st.integers(2, 5)), sort_keys=False, allow_unicode=True, width=9999)
    lines: list[str] = []
    for line in shown.rstrip("\n").split("\n"):
        # Inside a quoted text of several lines a comment would be text.
        if "multi" not in shown and draw(st.integers(0, 3)) == 0:
            lines.append(draw(st.sampled_from(["", "  "])) + "# note")
        lines.append(line + (draw(st.sampled_from(["", " # note"])) if "multi" not in shown else ""))
        if "multi" not in shown and draw(st.integers(0, 4)) == 0:
            lines.append("")
    return _finished(draw, "\n".join(lines) + draw(st.sampled_from(["", "\n", "\n\n", "\n# end\n"])))


def _finished(draw: st.DrawFn, text: str) -> str:
    if draw(st.integers(0, 3)) == 0:
        text = text.replace("\n", "\r\n")
    return ("\ufeff" if draw(st.integers(0, 5)) == 0 else "") + text
