"""Every test has the device; `python` runs a program in a process of its own."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch  # noqa: F401

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
