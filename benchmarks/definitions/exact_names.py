"""What a search for the exact name of a large tool costs, for the rules that are kept.

    python -m benchmarks.definitions.exact_names

Large are tools of over 250 tokens in the dumps. Cost: the condensed signature's share of the complete one's tokens
(cl100k_base). Each row keeps so many letters of optional parameters with rules, first those with the weightiest.
"""

from __future__ import annotations

from benchmarks.definitions.rules import NAMED_IN_FULL, rules
from benchmarks.tools import dumped_tools
from mcp_optimizer.compression.brief import LETTERS_OF_RULES_OF_A_NAME, condensed
from mcp_optimizer.compression.signature import signature
from mcp_optimizer.token_counter import TokenCounter


def main() -> None:
    counter, found = TokenCounter(), rules()
    tools = [(server, tool, signature(tool)) for server, tool in dumped_tools()]
    sizes = counter.count_many([text for _, _, text in tools])
    large = [(*one, size) for one, size in zip(tools, sizes, strict=True) if size > NAMED_IN_FULL]
    whole = {(server, tool.name): text for server, tool, text in tools}
    print(f"{len(large):,} tools of over {NAMED_IN_FULL} tokens\n")
    print("| letters of rules | rules kept | cost of all | of over 600 | of over 2,000 tokens |")
    print("|---:|---:|---:|---:|---:|")
    for letters in (LETTERS_OF_RULES_OF_A_NAME, 700, 500, 300, 0):
        shown = {(server, tool.name): condensed(text, tool, letters) for server, tool, text, _ in large}
        kept = sum(rule.is_in((whole | shown)[rule.server, rule.tool]) for rule in found)
        costs = dict(zip(shown, counter.count_many(list(shown.values())), strict=True))
        shares = []
        for least in (0, 600, 2_000):
            chosen = [(costs[server, tool.name], size) for server, tool, _, size in large if size > least]
            shares.append(sum(cost for cost, _ in chosen) / sum(size for _, size in chosen))
        said = " | ".join(f"{share:.0%}" for share in shares)
        print(f"| {letters:,} | {kept} of {len(found)} ({kept / len(found):.1%}) | {said} |")


if __name__ == "__main__":
    main()
