"""Snapshots of a trained model by copy.deepcopy: on flex they share the model's bytes until one is written."""

from __future__ import annotations

import copy
import gc
import os
import time
from dataclasses import dataclass

import torch
from rich.progress import track
from torch import nn

COUNT = 1000


@dataclass
class Snapshots:
    """What COUNT snapshots cost: resident memory of the process in bytes, and time without the progress bar's."""

    nbytes: int
    seconds: float


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def take(device: str, model: nn.Module) -> Snapshots:
    """Takes the snapshots, then changes the model and checks that no snapshot follows."""
    trained = [parameter.detach().cpu().numpy().copy() for parameter in model.parameters()]
    gc.collect()
    before, seconds, snapshots = resident_bytes(), 0.0, []
    for _ in track(range(COUNT), description=f"  {device:>4}: copy.deepcopy(model)"):
        started = time.perf_counter()
        snapshots.append(copy.deepcopy(model))
        seconds += time.perf_counter() - started
    nbytes = resident_bytes() - before

    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    for snapshot in (snapshots[0], snapshots[-1]):
        for parameter, expected in zip(snapshot.parameters(), trained, strict=True):
            if not (parameter.detach().cpu().numpy() == expected).all():
                raise AssertionError(f"a snapshot on {device} changed with the model")
    return Snapshots(nbytes, seconds)
