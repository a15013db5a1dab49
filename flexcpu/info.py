"""What `python -m flexcpu` prints: versions, the processor, the libraries in use, the device's memory."""

from __future__ import annotations

import os
import platform
import re
from typing import Any

import torch

import flexcpu

from . import _C
from ._load import FALLBACK_MODES, SIMD_TARGETS
from .device import fallback_mode, get_arch_list, mem_get_info, memory_stats
from .device.properties import cpu_info, get_device_name

_FEATURES = (
    "sse4_2", "avx", "f16c", "fma", "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile",
)  # fmt: skip
_LIBRARIES = ("libgomp", "libdnnl", "libhwy", "libtorch_cpu")


def mapped_libraries() -> dict[str, list[str]]:
    """The files of each library of interest that this process has mapped. Two libgomps would fight for the cores."""
    with open("/proc/self/maps", encoding="utf-8") as file:
        paths = sorted({line.split(maxsplit=5)[5].strip() for line in file if "/" in line})
    return {
        library: [path for path in paths if re.match(rf"{library}\b[^/]*\.so", os.path.basename(path))]
        for library in _LIBRARIES
    }


def collect() -> dict[str, Any]:
    """Everything, as one JSON-able dictionary. Sizes are in bytes."""
    flags = cpu_info().get("flags", "").split()
    free, total = mem_get_info()
    stats = memory_stats()
    return {
        "versions": {
            "flexcpu": flexcpu.__version__,
            "torch": torch.__version__,
            "oneDNN": _C.onednn_version(),
            "python": platform.python_version(),
            "system": platform.platform(),
        },
        "cpu": {
            "name": get_device_name(),
            "features": [feature for feature in _FEATURES if feature in flags],
            "processors": len(os.sched_getaffinity(0)),
        },
        "simd": {"active": _C.active_target(), "compiled": get_arch_list()},
        "threads": torch.get_num_threads(),
        "fallback": fallback_mode(),
        "environment": {
            "FLEXCPU_SIMD": {"value": os.environ.get("FLEXCPU_SIMD"), "permitted": list(SIMD_TARGETS)},
            "FLEXCPU_FALLBACK": {"value": os.environ.get("FLEXCPU_FALLBACK"), "permitted": list(FALLBACK_MODES)},
            "FLEXCPU_CACHE_LIMIT": {"value": os.environ.get("FLEXCPU_CACHE_LIMIT"), "permitted": ["bytes", "512M", "4G"]},
        },
        "libraries": mapped_libraries(),
        "memory": {
            "free": free,
            "total": total,
            "allocated": stats["allocated_bytes.all.current"],
            "reserved": stats["reserved_bytes.all.current"],
        },
    }


def as_text(info: dict[str, Any]) -> str:
    """The same for readers: a line for each entry."""
    gib = {name: f"{size / 2**30:.1f} GiB" for name, size in info["memory"].items()}
    lines = list(info["versions"].items())
    lines += [
        ("processor", f"{info['cpu']['name']}, {info['cpu']['processors']} usable"),
        ("features", " ".join(info["cpu"]["features"])),
        ("instruction set", f"{info['simd']['active']} (of {', '.join(info['simd']['compiled'])})"),
        ("threads", info["threads"]),
        ("fallback", info["fallback"]),
        ("memory", f"{gib['free']} free of {gib['total']}; {gib['allocated']} allocated, {gib['reserved']} reserved"),
    ]
    for name, setting in info["environment"].items():
        lines.append((name, f"{setting['value'] or 'not set'} ({'|'.join(setting['permitted'])})"))
    for library, paths in info["libraries"].items():
        lines += [(library, path) for path in paths] or [(library, "not mapped")]
    return "\n".join(f"{name:<16}  {value}" for name, value in lines)
