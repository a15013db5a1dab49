"""A second CPU device for PyTorch: `device="flex"`.

Once installed, `import torch` is enough; `torch.flex` is the device's module, as `torch.cuda` is CUDA's. Where CUDA or
XPU is available, or with TORCH_DEVICE_BACKEND_AUTOLOAD=0, `import flexcpu` asks for the device.

    flexcpu.asarray(t)         a NumPy array over a tensor's bytes
    flexcpu.from_cpu(t)        a flex tensor of a CPU tensor, on request without a copy
    flexcpu.shares_memory(a, b)
    flexcpu.explain()          which way the kernels of a block went, and why not a faster one

Environment: FLEXCPU_SIMD=baseline|avx2|avx3 caps the instruction set, FLEXCPU_FALLBACK=silent|warn|error says what
happens when an op has no native kernel. `python -m flexcpu` prints what is in use.
"""

import sys

__version__ = "0.1.0"
__all__ = ["asarray", "explain", "from_cpu", "shares_memory"]


def _autoload() -> None:
    """Called at the end of `import torch`, which must not fail and must not initialize CUDA."""
    from . import _load

    if _load.other_accelerator() is None:
        try:
            _load.load()
            return
        except Exception as error:
            if not __spec__._initializing:
                import warnings

                warnings.warn(f'device "flex" is not available: {error}', stacklevel=2)
    if not __spec__._initializing:  # not inside somebody's `import flexcpu`
        # Nothing was loaded: a later `import flexcpu` runs this file again.
        sys.modules.pop(__name__, None)


import torch  # noqa: E402  (may call _autoload)

from .interop import asarray, from_cpu, shares_memory  # noqa: E402
from .plans import explain  # noqa: E402

if not torch.__spec__._initializing:  # else torch is autoloading this very module and calls _autoload next
    from . import _load

    _load.load()
