"""Builds flexcpu._C with CMake; metadata is in pyproject.toml."""

import os
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent.resolve()


class CMakeBuild(build_ext):
    """Configures and builds into one folder per interpreter and torch, so that rebuilds are incremental."""

    def run(self):
        # An installed older flexcpu must not load itself into the build.
        os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
        import torch

        # An isolated build's paths are gone at the next one: its folder must not be reused.
        isolated = "" if Path(sys.prefix) in Path(torch.__file__).parents else "-isolated"
        build = ROOT / "build" / f"{sys.implementation.cache_tag}-torch{torch.__version__}{isolated}"
        out = ROOT if self.editable_mode else Path(self.build_lib).resolve()
        configure = ["cmake", "-S", str(ROOT), "-B", str(build), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                     f"-DPython_EXECUTABLE={sys.executable}"]
        if isolated:
            configure.append("--fresh")
        subprocess.check_call(configure)
        subprocess.check_call(["cmake", "--build", str(build), "--target", "flexcpu_extension"])
        subprocess.check_call(["cmake", "--install", str(build), "--prefix", str(out), "--component", "python"])


setup(ext_modules=[Extension("flexcpu._C", [])], cmdclass={"build_ext": CMakeBuild})
