"""Loads the C++ core and tells torch of the device, once per process."""

from __future__ import annotations

import os
import re
import threading
from types import ModuleType

import torch

TORCH_VERSION = "2.13"
ONEDNN_PACKAGE = "onednn-cpu-gomp"
FALLBACK_MODES = ("silent", "warn", "error")
PENDING_MODES = ("on", "off")
SIMD_TARGETS = ("baseline", "avx2", "avx3")

_lock = threading.Lock()
_loaded = False


def other_accelerator() -> str | None:
    """The accelerator that torch can use without us, found without initializing it."""
    if torch.backends.cuda.is_built():
        # Asks the driver's management library: CUDA itself must not be initialized before a fork.
        count = torch.cuda._device_count_amdsmi() if torch.version.hip else torch.cuda._device_count_nvml()
        if count > 0:
            return "cuda"
    if torch.xpu._is_compiled() and torch.xpu.device_count() > 0:
        return "xpu"
    return None


def load() -> None:
    """Makes `device="flex"` available. Harmless when it is already. Raises ImportError with the cause and the remedy;
    torch is then as it was."""
    global _loaded
    with _lock:
        if _loaded:
            return
        _check_torch()
        core = _import_core()
        if not core.cpu_has_baseline():
            raise ImportError('flexcpu needs a processor with SSE4.2. Use device="cpu" on this machine.')
        mode = _choice("FLEXCPU_FALLBACK", FALLBACK_MODES)
        pending = _choice("FLEXCPU_PENDING", PENDING_MODES)
        cache_limit = _size("FLEXCPU_CACHE_LIMIT")
        core.cap_target(_choice("FLEXCPU_SIMD", SIMD_TARGETS))
        _register(core)
        if mode:
            core.set_fallback_mode(getattr(core.FallbackMode, mode))
        core.set_pending(pending != "off")
        if cache_limit is not None:
            core.set_cache_limit(cache_limit)
        _loaded = True


def _check_torch() -> None:
    if not re.match(re.escape(TORCH_VERSION) + r"\.\d", torch.__version__):
        raise ImportError(
            f"this flexcpu is built for torch {TORCH_VERSION}, and torch {torch.__version__} is installed. "
            f'Install the flexcpu for your torch, or run: pip install "torch=={TORCH_VERSION}.*"'
        )
    name = torch._C._get_privateuse1_backend_name()
    if name != "privateuseone":
        raise ImportError(
            f'another package has given torch the device "{name}", and torch takes one such device per process. '
            "Set TORCH_DEVICE_BACKEND_AUTOLOAD=0 and import only the package that you want."
        )


def _import_core() -> ModuleType:
    try:
        try:
            from . import _C
        except ImportError as error:
            # oneDNN is usually found beside Python's own libraries; not so when it was installed elsewhere on sys.path.
            if "libdnnl" not in str(error) or not _preload_onednn():
                raise
            from . import _C
    except ImportError as error:
        remedy = "Reinstall flexcpu in this environment: pip install --force-reinstall --no-deps flexcpu"
        if "libdnnl" in str(error):
            remedy = f"flexcpu needs oneDNN 3. Install it by: pip install {ONEDNN_PACKAGE}"
        raise ImportError(f"flexcpu's library cannot be loaded: {error}. {remedy}") from error
    return _C


def _preload_onednn() -> bool:
    import ctypes
    from importlib import metadata

    try:
        files = metadata.files(ONEDNN_PACKAGE) or ()
    except metadata.PackageNotFoundError:
        return False
    for file in files:
        if file.name == "libdnnl.so.3":
            ctypes.CDLL(str(file.locate()))
            return True
    return False


def _choice(variable: str, permitted: tuple[str, ...]) -> str:
    value = os.environ.get(variable, "")
    if value and value not in permitted:
        raise ImportError(f'{variable} must be one of {", ".join(permitted)}, not "{value}".')
    return value


def _size(variable: str) -> int | None:
    value = os.environ.get(variable, "")
    if not value:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(?:([KMGT])(?:i?B)?)?", value)
    if not match or (nbytes := int(float(match[1]) * 1024 ** " KMGT".index(match[2] or " "))) >= 2**64:
        raise ImportError(f'{variable} must be a number of bytes, such as 0, 512M or 4G, not "{value}".')
    return nbytes


def _register(core: ModuleType) -> None:
    from . import autograd, interop, serialization, sharing

    torch.utils.rename_privateuse1_backend("flex")
    core.register_device()

    from . import device

    torch._register_device_module("flex", device)
    torch.utils.generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
    )
    for part in (autograd, interop, serialization, sharing):
        part.register()
