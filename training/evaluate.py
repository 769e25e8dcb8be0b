"""Measures the shipped retriever on the dev sets: `python -m training.evaluate --artefacts DIR --encoder NAME ...`.

Ranks with `ranker.rank` and the exported encoder, the static table or no encoder. `--embed FILE` only writes the
encoder's vectors of the chosen sets, for `fusion.py`. Prints the figures of every set, the figures of the first
eight hits after the cut, and how many foreign requests are refused.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from mcp_optimizer.search.encoders.static import StaticEncoder
from training import metrics, sets
from training.export import OnnxEncoder
from training.features import Floats, query_parts
from training.fusion import Vectors, is_foreign, read_vectors
from training.ranker import Catalog, Cosines, Fusion, Ranking, rank, read_fusion

LONGEST_TOKENS = 256
LIMIT = 8
Embed = Callable[[Sequence[str]], Floats]


def embedder(artefacts: Path, encoder: str) -> Embed:
    """A function that turns texts into unit vectors with the shipped encoder."""
    if encoder == "static":
        return StaticEncoder.load(artefacts / "static.npz").embed_queries
    onnx = OnnxEncoder(artefacts)
    return lambda texts: onnx.embed(texts, LONGEST_TOKENS)


def embed_sets(embed: Embed, loaded: Sequence[sets.ToolSet], out: Path, chosen: dict[str, list[int]]) -> None:
    """Write tools, queries (all, or the chosen ones) and their parts in the layout that `fusion.read_vectors` reads."""
    arrays: dict[str, np.ndarray] = {}
    for tool_set in loaded:
        index = chosen.get(tool_set.name) or list(range(len(tool_set.queries)))
        texts = [tool_set.queries[at].text for at in index]
        parts = [query_parts(text) for text in texts]
        flat = [part for some in parts for part in some]
        arrays[f"{tool_set.name}/tools"] = embed([tool.text() for tool in tool_set.tools]).astype(np.float16)
        arrays[f"{tool_set.name}/queries"] = embed(texts).astype(np.float16)
        arrays[f"{tool_set.name}/parts"] = embed(flat).astype(np.float16) if flat else np.zeros((0, 1), np.float16)
        arrays[f"{tool_set.name}/part_counts"] = np.array([len(some) for some in parts])
        arrays[f"{tool_set.name}/index"] = np.array(index)
    np.savez(out, **arrays)


def rankings(tool_set: sets.ToolSet, vectors: Vectors, fusion: Fusion, use_cosines: bool) -> list[Ranking]:
    """The ranking of every query of the set."""
    catalog = Catalog.build(tool_set.tools)
    return [
        rank(catalog, query.text, vectors.cosines(at) if use_cosines else None, fusion, 10)
        for at, query in enumerate(tool_set.queries)
    ]


def as_returned(ranking: Ranking, limit: int = LIMIT) -> list[int]:
    """What a user gets: nothing if nothing fits, otherwise the first hits up to the cut."""
    return ranking.positions[: min(limit, ranking.kept)].tolist() if ranking.answered else []


def foreign_refused(
    loaded: dict[str, sets.ToolSet],
    vectors: dict[str, Vectors],
    likeness: dict[str, Vectors],
    fusion: Fusion,
    use_cosines: bool,
) -> dict[str, tuple[int, float]]:
    """For each catalog: how many requests of the other sets are foreign to it, and the share of them refused."""
    chance = random.Random(7)  # noqa: S311 - drawing requests, not secrets
    found = {}
    for name in loaded:
        catalog = Catalog.build(loaded[name].tools)
        refused = []
        for other in sorted(set(loaded) - {name, sets.EXTRA_DEV_SET}) if name != sets.EXTRA_DEV_SET else ():
            queries = loaded[other].queries
            for at in chance.sample(range(len(queries)), min(100, len(queries))):
                gold = likeness[other].tools[sorted(queries[at].relevant)]
                both = np.concatenate([likeness[name].tools, gold])
                own = np.arange(len(likeness[name].tools))
                if is_foreign(both, frozenset(range(len(own), len(both))), own):
                    mixed = replace(vectors[other], tools=vectors[name].tools)
                    cosines = mixed.cosines(at) if use_cosines else None
                    refused.append(not rank(catalog, queries[at].text, cosines, fusion, 10).answered)
        if refused:
            found[name] = (len(refused), round(float(np.mean(refused)), 3))
    return found


def unrelated_refused(
    loaded: dict[str, sets.ToolSet], vectors: dict[str, Vectors], fusion: Fusion, embed: Embed | None
) -> dict[str, float]:
    """For each catalog, the share refused of everyday requests that none of its tools is meant for."""
    texts = (Path(__file__).parent / "foreign_requests.txt").read_text(encoding="utf-8").splitlines()
    rows = embed(texts) if embed else None
    none = np.zeros((0, 0), dtype=np.float32)
    found = {}
    for name, tool_set in loaded.items():
        catalog, tools = Catalog.build(tool_set.tools), vectors[name].tools
        answered = [
            rank(catalog, text, None if rows is None else Cosines(tools @ rows[at], none), fusion, 10).answered
            for at, text in enumerate(texts)
        ]
        found[name] = round(1.0 - float(np.mean(answered)), 3)
    return found


def measure(
    loaded: dict[str, sets.ToolSet], vectors: dict[str, Vectors], likeness: dict[str, Vectors],
    fusion: Fusion, embed: Embed | None,
) -> dict[str, object]:  # fmt: skip
    """The figures of the whole ranking, of what is returned, and of what is refused."""
    use_cosines = embed is not None
    whole, returned, counts = {}, {}, {}
    pooled: list[tuple[float, bool]] = []
    for name, tool_set in loaded.items():
        ranked = rankings(tool_set, vectors[name], fusion, use_cosines)
        whole[name] = metrics.figures([one.positions.tolist() for one in ranked], tool_set.queries)
        answers = [as_returned(one) for one in ranked]
        returned[name] = metrics.figures(answers, tool_set.queries)
        stated = [float(value) for one in ranked for value in one.likelihoods[:LIMIT]]
        hits = zip(ranked, tool_set.queries, strict=True)
        right = [int(at) in query.relevant for one, query in hits for at in one.positions[:LIMIT]]
        pooled.extend(zip(stated, right, strict=True) if name in sets.DEV_SETS else ())
        counts[name] = {
            "calibration_error": round(metrics.calibration_error(stated, right), 4),
            "mean_hits": round(float(np.mean([len(one) for one in answers if one])), 2),
            "refused": round(float(np.mean([not one for one in answers])), 4),
            "refused_only_recall5": round(
                metrics.figures(
                    [one.positions.tolist() if one.answered else [] for one in ranked], tool_set.queries
                ).recall5,
                4,
            ),
        }
    five = [name for name in sets.DEV_SETS if name in whole]
    whole["mean"] = metrics.mean_figures(whole[name] for name in five)
    returned["mean"] = metrics.mean_figures(returned[name] for name in five)
    return {
        "dev_calibration_error": round(metrics.calibration_error(*zip(*pooled, strict=True)), 4) if pooled else None,
        "figures": {name: one.row() for name, one in whole.items()},
        "returned": {name: one.row() for name, one in returned.items()},
        "counts": counts,
        "foreign_refused": foreign_refused(loaded, vectors, likeness, fusion, use_cosines),
        "unrelated_refused": unrelated_refused(loaded, vectors, fusion, embed),
    }


def only_cosine(fusion: Fusion) -> Fusion:
    """Weights for the cosine alone, for comparison."""
    weights = np.zeros_like(fusion.short.weights)
    weights[0] = 1.0
    return Fusion(replace(fusion.short, weights=weights), replace(fusion.long, weights=weights))


def main() -> None:
    """Command-line entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--artefacts", type=Path, required=True)
    parser.add_argument("--encoder", choices=("onnx", "static", "none"), required=True)
    parser.add_argument("--embed", type=Path, help="only write vectors to this file")
    parser.add_argument("--like", type=Path, nargs="*", default=[], help="with --embed: the train sets in these files")
    parser.add_argument("--vectors", type=Path, help="vectors of the dev sets")
    parser.add_argument("--likeness", type=Path, help="the transformer's vectors of the dev sets")
    parser.add_argument("--alone", action="store_true", help="rank by the cosine alone")
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    options = parser.parse_args()
    if options.embed:
        embed = embedder(options.artefacts, options.encoder)
        chosen = {name: one.index.tolist() for name, one in read_vectors(options.like).items()}
        loaded = [sets.load_train(name) for name in chosen]
        names = () if chosen else (*sets.DEV_SETS, sets.WRITTEN_DEV, sets.EXTRA_DEV_SET)
        embed_sets(embed, loaded or [sets.load_dev(name) for name in names], options.embed, chosen)
        return
    fusion = read_fusion((options.artefacts / "fusion.json").read_text(encoding="utf-8"), options.encoder)
    fusion = only_cosine(fusion) if options.alone else fusion
    vectors, likeness = read_vectors([options.vectors]), read_vectors([options.likeness or options.vectors])
    loaded_sets = {
        name: sets.load_dev(name) for name in (*sets.DEV_SETS, sets.WRITTEN_DEV, sets.EXTRA_DEV_SET) if name in vectors
    }
    embed = None if options.encoder == "none" else embedder(options.artefacts, options.encoder)
    found = measure(loaded_sets, vectors, likeness, fusion, embed)
    if options.out:
        options.out.write_text(json.dumps(found, indent=1), encoding="utf-8")
    for part in ("figures", "returned"):
        print(part)
        for name, row in found[part].items():
            print(f"  {name:22s}", " ".join(f"{key}={value:.4f}" for key, value in row.items()))
    for part in ("dev_calibration_error", "counts", "foreign_refused", "unrelated_refused"):
        print(part, json.dumps(found[part]))


if __name__ == "__main__":
    main()
