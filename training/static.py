"""Makes the static table from the trained encoder: `python -m training.static --encoder DIR --pairs DIR --out FILE`.

Each word piece starts with the encoder's vector for that piece alone, reduced to 256 dimensions by principal
components and weighted by rarity. The table then learns from the pairs and from the encoder's own scores for them.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mcp_optimizer.search.encoders.static import StaticEncoder
from training import encoder
from training.export import MODEL_FILE, OnnxEncoder
from training.features import ToolWords
from training.train import Recipe, read_pairs, read_tools

DIMENSIONS = 256
SCALE = 20.0
KINDS = "query,clause,first_sentence,request,name_request,near_keywords,written,general"
Embed = Callable[[list[str], int], NDArray[np.float32]]


def useful_pieces(tokenizer_file: Path) -> list[str]:
    """Latin word pieces; the rest of the vocabulary is of no use without the transformer."""
    vocabulary = json.loads(tokenizer_file.read_text(encoding="utf-8"))["model"]["vocab"]
    plain = [piece for piece in vocabulary if piece.removeprefix("##").isascii()]
    return [piece for piece in plain if piece.removeprefix("##").isalnum()]


def first_rows(embed: Embed, pieces: list[str], counts: Counter[int]) -> NDArray[np.float32]:
    """The encoder's vectors of single pieces, in fewer dimensions, with more weight on rare pieces."""
    alone = embed([piece.removeprefix("##") for piece in pieces], 16)
    centred = alone - alone.mean(axis=0)
    _, _, axes = np.linalg.svd(centred[:: max(1, len(centred) // 6000)], full_matrices=False)
    total = sum(counts.values())
    share = np.array([(counts[at] + 1) / total for at in range(len(pieces))], dtype=np.float32)
    return (centred @ axes[:DIMENSIONS].T) * (1e-3 / (1e-3 + share))[:, None]


def bags(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Ids and offsets in the form that an embedding bag takes."""
    flat = [at for row in rows for at in row]
    offsets = np.cumsum([0, *(len(row) for row in rows[:-1])])
    return torch.tensor(flat, dtype=torch.int64), torch.from_numpy(offsets)


def also_right(chosen: list[tuple[list[int], int, frozenset[int], int]], tools: list[int]) -> Tensor:
    """True where a column's tool also answers the row's query but is not the one asked for."""
    columns: dict[int, list[int]] = {}
    for column, tool in enumerate(tools):
        columns.setdefault(tool, []).append(column)
    result = np.zeros((len(chosen), len(tools)), dtype=np.bool_)
    for row, example in enumerate(chosen):
        result[row, [column for tool in example[2] for column in columns.get(tool, ())]] = True
    np.fill_diagonal(result, False)
    return torch.from_numpy(result)


def teach(
    table: nn.EmbeddingBag,
    examples: list[tuple[list[int], int, frozenset[int], int]],
    tool_rows: list[list[int]],
    teacher: tuple[Tensor, Tensor],
    epochs: int,
    seed: int,
    batch: int = 1024,
) -> None:
    """Train with in-batch softmax towards the gold tool and towards the teacher's distribution."""
    chance = random.Random(seed)  # noqa: S311 - shuffling, not secrets
    optimizer = torch.optim.Adam(table.parameters(), lr=4e-3)
    steps = epochs * (len(examples) // batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1 - step / steps))
    for epoch in range(epochs):
        chance.shuffle(examples)
        total = 0.0
        for begin in range(0, len(examples) - batch + 1, batch):
            chosen = examples[begin : begin + batch]
            tools = [example[1] for example in chosen]
            left = nn.functional.normalize(table(*bags([example[0] for example in chosen])), dim=-1)
            right = nn.functional.normalize(table(*bags([tool_rows[tool] for tool in tools])), dim=-1)
            masked = also_right(chosen, tools)
            logits = (left @ right.T * SCALE).masked_fill(masked, -1e4)
            taught = teacher[0][[example[3] for example in chosen]] @ teacher[1][tools].T * SCALE
            taught = taught.masked_fill(masked, -1e4).softmax(-1)
            loss = nn.functional.cross_entropy(logits, torch.arange(len(chosen)))
            loss = loss + nn.functional.cross_entropy(logits, taught)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += float(loss.detach())
        print(f"epoch {epoch + 1}: {total / max(1, len(examples) // batch):.3f}", flush=True)


def quantised(pieces: list[str], rows: NDArray[np.float32]) -> StaticEncoder:
    """Each row as int8 with its own scale."""
    scales = (np.abs(rows).max(axis=1) / 127.0 + 1e-8).astype(np.float16)
    values = np.rint(rows / scales.astype(np.float32)[:, None]).clip(-127, 127).astype(np.int8)
    return StaticEncoder({piece: at for at, piece in enumerate(pieces)}, values, scales)


def teacher_of(folder: Path) -> Embed:
    """The exported encoder, or else the trained weights, on the GPU if there is one."""
    if (folder / MODEL_FILE).exists():
        return OnnxEncoder(folder).embed
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model, tokenizer = encoder.Encoder(folder).to(device), encoder.load_tokenizer(folder)
    return lambda texts, longest: encoder.embed(model, encoder.tokenize(tokenizer, texts, longest), device)


def learned_table(
    embed: Embed, tokenizer_file: Path, pairs: list[dict], tools: list[ToolWords], options: argparse.Namespace
) -> StaticEncoder:
    """The table trained on a sample of the pairs and the teacher's scores for them."""
    chance = random.Random(options.seed)  # noqa: S311 - drawing a sample, not secrets
    chosen = chance.sample(pairs, min(options.most, len(pairs)))
    pieces = useful_pieces(tokenizer_file)
    empty = StaticEncoder({p: at for at, p in enumerate(pieces)}, np.zeros((0, 0), np.int8), np.zeros(0, np.float16))
    query_rows = [empty.ids(pair["query"]) for pair in chosen]
    tool_rows = [empty.ids(tool.text()) for tool in tools]
    counts = Counter(at for row in [*query_rows, *tool_rows] for at in row)
    queries, texts = [pair["query"] for pair in chosen], [tool.text() for tool in tools]
    teacher = torch.from_numpy(embed(queries, 128)), torch.from_numpy(embed(texts, 192))
    table = nn.EmbeddingBag(len(pieces), DIMENSIONS, mode="sum")
    with torch.no_grad():
        table.weight.copy_(torch.from_numpy(first_rows(embed, pieces, counts)))
    examples = [
        (row, pair["tools"][0], frozenset(pair["tools"]), at)
        for at, (row, pair) in enumerate(zip(query_rows, chosen, strict=True))
        if row
    ]
    teach(table, examples, tool_rows, teacher, options.epochs, options.seed)
    return quantised(pieces, table.weight.detach().numpy())


def main() -> None:
    """Command-line entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", type=Path, required=True, help="folder with the trained or the exported weights")
    parser.add_argument("--pairs", type=Path, required=True)
    parser.add_argument("--left-out", default="", help="sources not to learn from, for the table of a fold")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--most", type=int, default=60_000, help="maximum pairs to sample")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_num_threads(2)
    tools = read_tools(options.pairs)
    pairs = read_pairs(options.pairs, Recipe(kinds=KINDS, sources_left_out=options.left_out))
    tokenizer_file = options.encoder / "tokenizer.json"
    learned_table(teacher_of(options.encoder), tokenizer_file, pairs, tools, options).save(options.out)
    print(f"{options.out}: {options.out.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
