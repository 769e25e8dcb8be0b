"""Trains several runs on one GPU and measures each: `python -m training.sweep --plan PLAN.json ...`.

The plan is a list of {"name", "set": ["key=value", ...]}. Writes one line per run to `results.jsonl`: the recipe and,
for each measured set, recall, hit rate and nDCG of the cosine alone. The measured texts come from `measured.jsonl`,
which `--prepare` writes, so that the GPU machine needs no data folder.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from training import encoder, metrics, sets, train
from training.features import query_parts

LONG_TOKENS = (256, 256)
SAMPLED_QUERIES = 1000
SAMPLED_WRITTEN = 2000
SAMPLE_SEED = 7
INT8_SCALE = 256.0  # components of a unit vector with 384 dimensions rarely exceed one half


def prepare(out: Path) -> None:
    """Write every dev and train set as texts and groups."""
    names = [("dev", name) for name in (*sets.DEV_SETS, sets.EXTRA_DEV_SET, sets.WRITTEN_DEV)]
    names += [("train", name) for name in (*sets.TRAIN_SETS, *sets.WRITTEN_FOLDS)]
    with out.open("w", encoding="utf-8") as lines:
        for role, name in names:
            loaded = sets.load_dev(name) if role == "dev" else sets.load_train(name)
            record = {
                "role": role,
                "name": name,
                "tools": [tool.text() for tool in loaded.tools],
                "queries": [{"id": q.id, "text": q.text, "groups": q.groups} for q in loaded.queries],
            }
            lines.write(json.dumps(record, ensure_ascii=False) + "\n")


def read_measured(path: Path) -> list[dict]:
    """The sets that `prepare` wrote."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


class Vectors:
    """Embeds measured sets; tokenizes each text once per length."""

    def __init__(self, measured: list[dict], tokenizer_folder: Path, device: torch.device) -> None:
        self.measured, self.device = measured, device
        self.tokenizer = encoder.load_tokenizer(tokenizer_folder)
        self.tokens: dict[tuple[str, int, int], tuple[list[list[int]], list[list[int]]]] = {}

    def of(
        self, model: encoder.Encoder, record: dict, tool_tokens: int, query_tokens: int
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Tool vectors and query vectors of one set."""
        key = (record["name"], tool_tokens, query_tokens)
        if key not in self.tokens:
            texts = [query["text"] for query in record["queries"]]
            self.tokens[key] = (
                encoder.tokenize(self.tokenizer, record["tools"], tool_tokens),
                encoder.tokenize(self.tokenizer, texts, query_tokens),
            )
        tools, queries = self.tokens[key]
        return encoder.embed(model, tools, self.device), encoder.embed(model, queries, self.device)


def cosine_figures(record: dict, tools: NDArray[np.float32], queries: NDArray[np.float32]) -> metrics.Figures:
    """The figures of ranking by the cosine alone."""
    wanted = [
        sets.Query(query["id"], query["text"], tuple(tuple(group) for group in query["groups"]))
        for query in record["queries"]
    ]
    order = np.argsort(-(queries @ tools.T), axis=1, kind="stable")[:, :10]
    return metrics.figures(order.tolist(), wanted)


def measure(model: encoder.Encoder, vectors: Vectors, tool_tokens: int, query_tokens: int) -> dict[str, dict]:
    """The figures of every dev set, and their mean over the five in `DEV_SETS`."""
    found = {}
    for record in vectors.measured:
        if record["role"] == "dev":
            found[record["name"]] = cosine_figures(record, *vectors.of(model, record, tool_tokens, query_tokens))
    mean = metrics.mean_figures(found[name] for name in sets.DEV_SETS)
    return {name: one.row() for name, one in {**found, "mean": mean}.items()}


def average(folders: list[Path], base: Path) -> encoder.Encoder:
    """A model whose weights are the mean over several runs."""
    states = [encoder.Encoder(folder).state_dict() for folder in folders]
    model = encoder.Encoder(base)
    model.load_state_dict({key: sum(state[key].float() for state in states) / len(states) for key in states[0]})
    return model


def write_vectors(model: encoder.Encoder, vectors: Vectors, names: list[str], out: Path) -> None:
    """Write vectors of sets that this run never saw, as int8: tools, sampled queries and their parts."""
    arrays: dict[str, NDArray[np.int8] | NDArray[np.int64]] = {}
    for record in vectors.measured:
        if record["name"] not in names:
            continue
        count = len(record["queries"])
        chance = random.Random(SAMPLE_SEED)  # noqa: S311 - drawing, not secrets
        most = SAMPLED_WRITTEN if record["name"] in sets.WRITTEN_FOLDS else SAMPLED_QUERIES
        chosen = sorted(chance.sample(range(count), min(count, most)))
        texts = [record["queries"][index]["text"] for index in chosen]
        parts = [query_parts(text) for text in texts]
        kinds = {"tools": record["tools"], "queries": texts, "parts": [part for some in parts for part in some]}
        for kind, kind_texts in kinds.items():
            rows = encoder.tokenize(vectors.tokenizer, kind_texts, LONG_TOKENS[0])
            found = encoder.embed(model, rows, vectors.device)
            arrays[f"{record['name']}/{kind}"] = np.rint(found * INT8_SCALE).clip(-127, 127).astype(np.int8)
        arrays[f"{record['name']}/index"] = np.array(chosen)
        arrays[f"{record['name']}/part_counts"] = np.array([len(some) for some in parts])
    np.savez_compressed(out, **arrays)


def best_run(results: Path) -> str:
    """The name of the run with the best mean nDCG@5 on dev."""
    with results.open(encoding="utf-8") as lines:
        found = [json.loads(line) for line in lines]
    return str(max(found, key=lambda line: line["longer"]["mean"]["ndcg5"])["name"])


def perform(run: dict, options: argparse.Namespace, vectors: Vectors) -> None:
    """Train (or average) one entry of the plan, measure it and save it."""
    began = time.monotonic()
    recipe = train.recipe_of(run.get("set", []))
    if "soup" in run:
        folders = [path for name in run["soup"] if (path := options.models / name).exists()]
        model = average(folders, options.base).to(vectors.device)
    else:
        model = train.train(options.pairs, options.base, recipe, vectors.device, log=False)
    trained = time.monotonic() - began
    found = measure(model, vectors, recipe.tool_tokens, recipe.query_tokens)
    longer = measure(model, vectors, *LONG_TOKENS)
    line = {**run, "seconds": round(trained, 1), "recipe": asdict(recipe), "figures": found, "longer": longer}
    with options.results.open("a", encoding="utf-8") as out:
        out.write(json.dumps(line) + "\n")
    shown = " ".join(f"{name[:9]}={one['ndcg5']:.4f}" for name, one in found.items())
    print(f"{run['name']}: {trained:.0f}s {shown} longer={longer['mean']['ndcg5']:.4f}", flush=True)
    if "vectors" in run:
        write_vectors(model, vectors, run["vectors"], options.results.parent / f"{run['name']}.npz")
    train.save(model, options.base, options.models / run["name"], recipe)


def main() -> None:
    """Command-line entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prepare", type=Path, help="only write the measured texts to this file")
    parser.add_argument("--plan", type=Path)
    parser.add_argument("--pairs", type=Path)
    parser.add_argument("--base", type=Path)
    parser.add_argument("--measured", type=Path)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--models", type=Path, help="folder for the weights of each run")
    parser.add_argument("--worker", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--best", action="store_true", help="only print the name of the best run")
    options = parser.parse_args()
    if options.prepare:
        prepare(options.prepare)
    elif options.best:
        print(best_run(options.results))
    else:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        vectors = Vectors(read_measured(options.measured), options.base, device)
        for run in json.loads(options.plan.read_text(encoding="utf-8"))[options.worker :: options.workers]:
            perform(run, options, vectors)


if __name__ == "__main__":
    main()
