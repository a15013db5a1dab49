"""What the device is: the processor."""

from __future__ import annotations

import functools
import os
import platform
from dataclasses import dataclass

import torch

from .. import _C
from .._load import SIMD_TARGETS
from .selection import Device, checked_index


@dataclass(frozen=True)
class DeviceProperties:
    """name: the processor's. total_memory: of the machine, in bytes. multi_processor_count: processors that this
    process may use. simd: the instruction set that kernels use ("baseline", "avx2", "avx3")."""

    name: str
    total_memory: int
    multi_processor_count: int
    simd: str


@functools.cache
def cpu_info() -> dict[str, str]:
    """The first processor's entries in /proc/cpuinfo; empty where there is no such file."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            entries = (line.partition(":") for line in file.read().split("\n\n")[0].splitlines())
            return {key.strip(): value.strip() for key, _, value in entries}
    except OSError:
        return {}


def get_device_name(device: Device = None) -> str:
    """The processor's name."""
    checked_index(device)
    return cpu_info().get("model name") or platform.processor() or platform.machine()


def get_device_properties(device: Device = None) -> DeviceProperties:
    """The processor's name, memory, number and instruction set."""
    return DeviceProperties(
        name=get_device_name(device),
        total_memory=_C.memory_info()[1],
        multi_processor_count=len(os.sched_getaffinity(0)),
        simd=_C.active_target(),
    )


def get_device_capability(device: Device = None) -> dict[str, object]:
    """The instruction set in use, and whether the processor computes in bfloat16 and float16 by itself."""
    checked_index(device)
    flags = cpu_info().get("flags", "").split()
    return {
        "simd": _C.active_target(),
        "native_bf16": "avx512_bf16" in flags or "amx_bf16" in flags,
        "native_fp16": "avx512_fp16" in flags or "amx_fp16" in flags,
    }


def get_arch_list() -> list[str]:
    """The instruction sets that kernels are compiled for, the most general first."""
    return list(SIMD_TARGETS)


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether bfloat16 tensors can be computed with; without emulation, whether the processor does so by itself."""
    return including_emulation or bool(get_device_capability()["native_bf16"])


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that autocast may compute in."""
    return [torch.bfloat16, torch.float16]


def can_device_access_peer(device: Device, peer_device: Device) -> bool:
    """False: there is no second device."""
    checked_index(device)
    checked_index(peer_device)
    return False
