"""Makes the exported graph lean: `python -m training.lean --model IN.onnx --out OUT.onnx`.

The product embeds one text at a time, without padding. For that, most of the exported graph's small nodes compute what
is known beforehand: the shapes of its reshapes, a mask that masks nothing, the embedding of the only token type. They
are left out, and the three products of each attention, which read the same input, become one. The vectors are the same,
bit for bit; for several texts at once, of different lengths, use the graph as exported.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, helper, numpy_helper

LAYERS, HEADS, HEAD = 6, 12, 32
WIDTH = HEADS * HEAD
_TYPES = "bert.embeddings.token_type_embeddings.weight"
_SPLIT = "/split"


class _Graph:
    """A graph's nodes and constants, by name, while they are changed."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.nodes = list(model.graph.node)
        self.outputs = [output.name for output in model.graph.output]
        self.constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}

    def maker(self, name: str) -> NodeProto:
        return next(node for node in self.nodes if name in node.output)

    def readers(self, name: str) -> list[NodeProto]:
        return [node for node in self.nodes if name in node.input]

    def redirect(self, old: str, new: str) -> None:
        """Have every node that reads `old` read `new`."""
        for node in self.readers(old):
            for at, name in enumerate(node.input):
                if name == old:
                    node.input[at] = new

    def constant(self, name: str, value: NDArray[np.generic]) -> str:
        self.constants[name] = value
        return name

    def known_shapes(self, model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
        """What was known of the values that are still computed: the runtime fuses nodes by their shapes."""
        made = {name for node in self.nodes for name in node.output}
        return [value for value in model.graph.value_info if value.name in made]

    def prune(self) -> None:
        """Drop the nodes whose outputs nobody reads any more, and the constants."""
        needed, kept = set(self.outputs), []
        for node in reversed(self.nodes):
            if needed.intersection(node.output):
                kept.append(node)
                needed.update(node.input)
        self.nodes = kept[::-1]
        self.constants = {name: value for name, value in self.constants.items() if name in needed}


def lean(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model for one text at a time."""
    graph = _Graph(model)
    types = graph.constants[f"{_TYPES}_quantized"][0].astype(np.float32)
    zero, scale = graph.constants[f"{_TYPES}_zero_point"], graph.constants[f"{_TYPES}_scale"]
    row = ((types - zero.astype(np.float32)) * scale).astype(np.float32)[None, None]
    only_type = graph.constant("only_type", row)
    graph.redirect("/bert/embeddings/token_type_embeddings/Gather_output_0", only_type)
    heads = graph.constant("heads_shape", np.array([0, 0, HEADS, HEAD], dtype=np.int64))
    joined = graph.constant("joined_shape", np.array([0, 0, WIDTH], dtype=np.int64))
    sizes = graph.constant("split_sizes", np.array([WIDTH] * 3, dtype=np.int64))
    for number in range(LAYERS):
        layer = f"/bert/encoder/layer.{number}/attention/self"
        graph.redirect(f"{layer}/Add_output_0", f"{layer}/MatMul_output_0")
        graph.redirect(f"{layer}/Where_1_output_0", f"{layer}/Softmax_output_0")
        for name in ("Reshape_output_0", "Reshape_1_output_0", "Reshape_2_output_0"):
            graph.maker(f"{layer}/{name}").input[1] = heads
        graph.maker(f"{layer}/Reshape_3_output_0").input[1] = joined
        _merge_products(graph, number, sizes)
    graph.prune()
    made = helper.make_graph(
        graph.nodes,
        "lean",
        list(model.graph.input),
        list(model.graph.output),
        [numpy_helper.from_array(value, name) for name, value in graph.constants.items()],
        value_info=graph.known_shapes(model),
    )
    result = helper.make_model(made, opset_imports=list(model.opset_import), ir_version=model.ir_version)
    onnx.checker.check_model(result)
    return result


def _merge_products(graph: _Graph, number: int, sizes: str) -> None:
    """One product for query, key and value. Their weights have a scale for each column, so nothing is rounded anew."""
    layer = f"/bert/encoder/layer.{number}/attention/self"
    parts = ("query", "key", "value")
    products = [graph.maker(f"{layer}/{part}/MatMul_output_0_output_quantized") for part in parts]
    scales = [graph.maker(f"{layer}/{part}/MatMul_quant_scales_mul:0") for part in parts]
    biases = [f"bert.encoder.layer.{number}.attention.self.{part}.bias" for part in parts]

    def stacked(names: list[str], kind: str) -> str:
        values = [graph.constants[name] for name in names]
        return graph.constant(f"layer.{number}.{kind}", np.concatenate(values, axis=-1))

    first, name = products[0], f"layer.{number}.qkv"
    weights = stacked([node.input[1] for node in products], "weights")
    zeros = stacked([node.input[3] for node in products], "zeros")
    factors = stacked([node.input[1] for node in scales], "scales")
    bias = stacked(biases, "bias")
    split = [f"{name}{_SPLIT}.{part}" for part in parts]
    merged = [
        helper.make_node("Mul", [scales[0].input[0], factors], [f"{name}.scale"]),
        helper.make_node("MatMulInteger", [first.input[0], weights, first.input[2], zeros], [f"{name}.integers"]),
        helper.make_node("Cast", [f"{name}.integers"], [f"{name}.floats"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Mul", [f"{name}.floats", f"{name}.scale"], [f"{name}.scaled"]),
        helper.make_node("Add", [bias, f"{name}.scaled"], [name]),
        helper.make_node("Split", [name, sizes], split, axis=2),
    ]
    # Behind the node that quantises their input, which stands before all three.
    quantised = graph.nodes.index(graph.maker(first.input[0]))
    graph.nodes[quantised + 1 : quantised + 1] = merged
    for part, output in zip(parts, split, strict=True):
        graph.redirect(f"{layer}/{part}/Add_output_0", output)


def main() -> None:
    """Command-line entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    before = onnx.load(options.model)
    after = lean(before)
    onnx.save(after, options.out)
    print(f"{len(before.graph.node)} nodes before, {len(after.graph.node)} now")


if __name__ == "__main__":
    main()
