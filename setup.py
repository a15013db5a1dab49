"""Builds flexcpu._C with CMake; metadata is in pyproject.toml."""

import os
import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent.resolve()


class CleanBuild(build):
    """Starts from an empty folder, so that no file of an earlier version gets into a wheel. CMake has its own."""

    def run(self):
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class CMakeBuild(build_ext):
    """Configures and builds into one folder per interpreter and torch, so that rebuilds are incremental."""

    def run(self):
        # An installed older flexcpu must not load itself into the build.
        os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
        torch = distribution("torch")
        # An isolated build's paths are gone at the next one: its folder must not be reused.
        isolated = "" if Path(sys.prefix) in Path(torch.locate_file("")).parents else "-isolated"
        folder = ROOT / "build" / f"{sys.implementation.cache_tag}-torch{torch.version}{isolated}"
        configure = ["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"]
        configure.append(f"-DPython_EXECUTABLE={sys.executable}")
        if isolated:
            configure.append("--fresh")
        out = ROOT if self.editable_mode else Path(self.build_lib).resolve()
        subprocess.check_call(configure)
        subprocess.check_call(["cmake", "--build", folder, "--target", "flexcpu_extension"])
        subprocess.check_call(["cmake", "--install", folder, "--prefix", out, "--component", "python"])


setup(ext_modules=[Extension("flexcpu._C", [])], cmdclass={"build": CleanBuild, "build_ext": CMakeBuild})
