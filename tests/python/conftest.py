"""Every test has the device; `python` runs a program in a process of its own."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch

import flexcpu  # noqa: F401


def _run(program: str, *args: str, check: bool = True, timeout: float = 300, **env: str) -> subprocess.CompletedProcess:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("FLEXCPU_", "TORCH_"))}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *args],
        env=inherited | env, capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip
    if check:
        assert done.returncode == 0, done.stderr
    return done


@pytest.fixture
def python():
    """python(program, *args, check=True, **environment) -> the completed process, with its output."""
    return _run


@pytest.fixture
def every_warning():
    """Warnings that torch gives once a process, at every call."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(before)
