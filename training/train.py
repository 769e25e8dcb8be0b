"""Fine-tunes the encoder: `python -m training.train --pairs DIR --base DIR --out DIR [--set key=value ...]`.

In-batch contrastive loss over the pairs from `pairs.py`. Each epoch draws new gold tools and new views of the tool
texts, with the seed as the only source of randomness. Writes the weights in fp16 and the recipe.
"""

from __future__ import annotations

import argparse
import json
import queue
import random
import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn

from training import synthetic
from training.encoder import Encoder, embed, encode_in_parts, load_tokenizer, tokenize
from training.features import DESCRIPTION_CHARS, ToolWords

QUERY_KINDS = ("query", "clause", "composite")
WRITTEN_KINDS = ("written", "indirect", "contrast", "contrast_more", "wishes", "wishes_more")
REGIONS = 3_000
ALIKE = 0.85


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that a run depends on."""

    seed: int = 7
    epochs: int = 3
    batch: int = 384
    rate: float = 6e-5
    warmup: float = 0.1
    scale: float = 20.0
    query_tokens: int = 96
    tool_tokens: int = 144
    gold_per_query: int = 2
    kinds: str = "query,first_sentence,keywords,request,name_request,clause"
    sources_left_out: str = ""
    siblings: int = 0  # tools of one server side by side in a batch; 0 means random order
    neighbours: float = 0.0  # share of the runs that are tools near to each other, of whatever server
    both_ways: float = 0.0  # weight of the loss from tool to query
    composites: int = 0  # requests per epoch that combine two to four others
    smoothing: float = 0.0
    general_share: float = 0.6  # probability that a request for a general-purpose tool is drawn in an epoch
    written_times: int = 1  # how often each hand-written request is drawn in an epoch
    typos: float = 0.0  # probability that a drawn request is mistyped


@dataclass(frozen=True, slots=True)
class Example:
    """One query, one of its gold tools, and the tools that must not count as wrong for it."""

    query: str
    tool: int
    gold: frozenset[int]
    cut: str
    server: str


def read_tools(folder: Path) -> list[ToolWords]:
    """The tools that `pairs.py` wrote."""
    with (folder / "tools.jsonl").open(encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    return [ToolWords(**{**record, "parameters": tuple(record["parameters"])}) for record in records]


def read_pairs(folder: Path, recipe: Recipe) -> list[dict]:
    """The pairs of the kinds and sources that the recipe uses."""
    kinds, left_out = set(recipe.kinds.split(",")), set(recipe.sources_left_out.split(","))
    with (folder / "pairs.jsonl").open(encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    return [record for record in records if record["kind"] in kinds and record["source"] not in left_out]


def view(tool: ToolWords, cut: str, chance: random.Random) -> str:
    """The tool's text with parts left out at random, so that no match depends on a single field."""
    description = tool.description.replace(cut, " ").strip() if cut else tool.description
    roll = chance.random()
    if roll < 0.15:
        tool = replace(tool, server="")
    elif roll < 0.25:
        tool = replace(tool, parameters=())
    elif roll < 0.32 and not cut:
        description = ""
    elif roll < 0.42:
        description = description[: chance.randint(60, DESCRIPTION_CHARS)]
    return replace(tool, description=description).text().strip()


def _examples(pairs: list[dict], tools: list[ToolWords], recipe: Recipe, chance: random.Random) -> list[Example]:
    """The examples of one epoch: some gold tools for each query, and composite requests."""
    examples = []
    written = [pair for pair in pairs if pair["kind"] in WRITTEN_KINDS]
    for pair in [*pairs, *written * (recipe.written_times - 1)]:
        gold, is_general = frozenset(pair["tools"]), pair["kind"] == "general"
        if is_general and chance.random() >= recipe.general_share:
            continue
        query = synthetic.mistyped(pair["query"], chance) if chance.random() < recipe.typos else pair["query"]
        # A general request is paired with its own tool; other tools that answer it just do not count as wrong.
        chosen = pair["tools"][:1] if is_general else pair["tools"]
        for tool in chance.sample(chosen, min(len(chosen), recipe.gold_per_query)):
            server = tools[tool].server if pair["kind"] not in QUERY_KINDS else ""
            examples.append(Example(query, tool, gold, pair["cut"], server))
    singles = [pair for pair in pairs if len(pair["tools"]) == 1 and len(pair["query"].split()) < 30]
    for _ in range(recipe.composites):
        parts = chance.sample(singles, chance.choice((2, 2, 3, 4)))
        link = chance.choice((". ", ", and ", " and then ", ". Also, ", "; ", ". After that, "))
        gold = frozenset(tool for part in parts for tool in part["tools"])
        query = link.join(part["query"].rstrip(".?! ") for part in parts)
        examples.extend(Example(query, tool, gold, "", "") for tool in chance.sample(sorted(gold), min(2, len(gold))))
    return examples


@dataclass(frozen=True, slots=True)
class Nearness:
    """The vectors of all tools in the base model: which are hard to tell apart, and which cannot be."""

    vectors: NDArray[np.float32]

    def regions(self, chance: random.Random) -> NDArray[np.intp]:
        """For each tool, the nearest of some tools drawn at random."""
        drawn = chance.sample(range(len(self.vectors)), min(REGIONS, len(self.vectors)))
        centres = self.vectors[drawn].T
        parts = np.array_split(self.vectors, max(1, len(self.vectors) // 4_000))
        return np.concatenate([np.argmax(part @ centres, axis=1) for part in parts])

    def alike(self, tools: list[int]) -> NDArray[np.bool_]:
        """Pairs of tools that may both be right."""
        vectors = self.vectors[tools]
        return np.asarray(vectors @ vectors.T > ALIKE)


def batches(
    examples: list[Example], recipe: Recipe, chance: random.Random, nearness: Nearness | None = None
) -> Iterator[list[Example]]:
    """Shuffled batches; with `siblings`, runs of one server's tools, or of tools near to each other, stay together."""
    runs: list[list[Example]] = []
    if recipe.siblings:
        by_server: dict[str, list[Example]] = defaultdict(list)
        regions = nearness.regions(chance) if nearness is not None else ()
        for example in examples:
            is_near = example.server and nearness is not None and chance.random() < recipe.neighbours
            by_server[f"region {regions[example.tool]}" if is_near else example.server].append(example)
        runs.extend([example] for example in by_server.pop("", []))
        for group in by_server.values():
            chance.shuffle(group)
            runs.extend(group[at : at + recipe.siblings] for at in range(0, len(group), recipe.siblings))
    else:
        runs = [[example] for example in examples]
    chance.shuffle(runs)
    flat = [example for run in runs for example in run]
    for begin in range(0, len(flat) - recipe.batch + 1, recipe.batch):
        yield flat[begin : begin + recipe.batch]


def allowed(batch: list[Example], same: list[str], nearness: Nearness | None = None) -> Tensor:
    """True where a column may count as a wrong answer, or is the row's own right answer."""
    size = len(batch)
    result = np.ones((size, size), dtype=np.bool_)
    if nearness is not None:
        servers = np.array([example.server for example in batch])
        result &= ~(nearness.alike([example.tool for example in batch]) & (servers[:, None] != servers[None, :]))
    columns: dict[int, list[int]] = defaultdict(list)
    twins: dict[str, list[int]] = defaultdict(list)
    for index, example in enumerate(batch):
        columns[example.tool].append(index)
        twins[same[example.tool]].append(index)
    for row, example in enumerate(batch):
        blocked = [column for tool in example.gold for column in columns.get(tool, ())]
        result[row, blocked + twins[same[example.tool]]] = False
        result[row, row] = True
    return torch.from_numpy(result)


def loss_of(queries: Tensor, tools: Tensor, mask: Tensor, recipe: Recipe) -> Tensor:
    """Cross-entropy of each query over the batch's tools and, with `both_ways`, of each tool over the queries."""
    logits = (queries @ tools.T * recipe.scale).masked_fill(~mask, -1e4)
    target = torch.arange(len(queries), device=queries.device)
    loss = nn.functional.cross_entropy(logits, target, label_smoothing=recipe.smoothing)
    if recipe.both_ways:
        loss = loss + recipe.both_ways * nn.functional.cross_entropy(logits.T, target)
    return loss


@dataclass(frozen=True, slots=True)
class Ready:
    """A batch prepared for the GPU: token rows of both sides, and the mask."""

    queries: list[list[int]]
    tools: list[list[int]]
    mask: Tensor


def ready_batches(
    pairs: list[dict], tools: list[ToolWords], tokenizer: Tokenizer, recipe: Recipe, nearness: Nearness | None = None
) -> Iterator[Ready]:
    """Every batch of every epoch, in order."""
    chance = random.Random(recipe.seed)  # noqa: S311 - drawing, not secrets
    same = [f"{tool.name}|{tool.description[:60].lower()}" for tool in tools]
    for _ in range(recipe.epochs):
        for batch in batches(_examples(pairs, tools, recipe, chance), recipe, chance, nearness):
            texts = [view(tools[example.tool], example.cut, chance) for example in batch]
            yield Ready(
                tokenize(tokenizer, [example.query for example in batch], recipe.query_tokens),
                tokenize(tokenizer, texts, recipe.tool_tokens),
                allowed(batch, same, nearness),
            )


def ahead(items: Iterator[Ready], depth: int = 8) -> Iterator[Ready]:
    """The same items, prepared by a thread a few steps ahead of the GPU."""
    waiting: queue.Queue[Ready | None] = queue.Queue(depth)

    def fill() -> None:
        for item in items:
            waiting.put(item)
        waiting.put(None)

    threading.Thread(target=fill, daemon=True).start()
    while (item := waiting.get()) is not None:
        yield item


def train(pairs_folder: Path, base: Path, recipe: Recipe, device: torch.device, log: bool = True) -> Encoder:
    """One run, starting from the base model."""
    torch.manual_seed(recipe.seed)
    tools, pairs = read_tools(pairs_folder), read_pairs(pairs_folder, recipe)
    tokenizer, model = load_tokenizer(base), Encoder(base).to(device)
    decayed = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=recipe.rate)
    trial = random.Random(0)  # noqa: S311 - drawing, not secrets
    steps = recipe.epochs * (len(_examples(pairs, tools, recipe, trial)) // recipe.batch)
    warm = max(1, int(steps * recipe.warmup))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm, max(0.0, (steps - step) / max(1, steps - warm)))
    )
    nearness = None
    if recipe.neighbours:
        rows = tokenize(tokenizer, [tool.text() for tool in tools], recipe.tool_tokens)
        nearness = Nearness(embed(model, rows, device))
    began, total = time.monotonic(), torch.zeros((), device=device)
    model.train()
    for step, batch in enumerate(ahead(ready_batches(pairs, tools, tokenizer, recipe, nearness)), start=1):
        with torch.autocast(device.type, dtype=torch.bfloat16):
            queries = encode_in_parts(model, batch.queries, device)
            positives = encode_in_parts(model, batch.tools, device)
        loss = loss_of(queries, positives, batch.mask.to(device), recipe)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        total += loss.detach()
        if log and (step % 100 == 0 or step == steps):
            passed = time.monotonic() - began
            print(f"step {step}/{steps}: mean loss {float(total) / step:.4f}, {passed:.0f} s", flush=True)
    return model


def save(model: Encoder, base: Path, out: Path, recipe: Recipe) -> None:
    """Write a folder that `encoder.Encoder` can read, with the weights in fp16."""
    out.mkdir(parents=True, exist_ok=True)
    model.bert.to(torch.float16).save_pretrained(str(out))
    shutil.copy(base / "tokenizer.json", out / "tokenizer.json")
    (out / "recipe.json").write_text(json.dumps(asdict(recipe), indent=1), encoding="utf-8")


def recipe_of(settings: list[str]) -> Recipe:
    """A recipe from `key=value` settings, with defaults for the others."""
    kinds = {field.name: type(getattr(Recipe(), field.name)) for field in fields(Recipe)}
    given = dict(setting.split("=", 1) for setting in settings)
    unknown = given.keys() - kinds.keys()
    if unknown:
        raise SystemExit(f"unknown setting: {', '.join(sorted(unknown))}; known settings: {', '.join(kinds)}")
    return Recipe(**{key: kinds[key](value) for key, value in given.items()})


def main() -> None:
    """Command-line entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=Path, required=True)
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    recipe = recipe_of(options.set)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = train(options.pairs, options.base, recipe, device)
    save(model, options.base, options.out, recipe)


if __name__ == "__main__":
    main()
