"""What a wheel and a source archive hold, and where the module in a wheel looks for its libraries."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INSTALLED = ("$ORIGIN/../torch/lib", "$ORIGIN/../../..")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "-q", "-w", folder, ROOT]
    subprocess.run(command, check=True, timeout=1800)
    (path,) = folder.glob("flexcpu-*.whl")
    return zipfile.ZipFile(path)


def run_path(library):
    dynamic = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    (line,) = (line for line in dynamic.splitlines() if "RUNPATH" in line or "RPATH" in line)
    return tuple(line.split("[")[1].rstrip("]").split(":"))


def test_a_wheel_holds_the_package_and_nothing_else(wheel):
    files = {name for name in wheel.namelist() if ".dist-info/" not in name}
    package = {str(path.relative_to(ROOT)) for path in (ROOT / "flexcpu").rglob("*") if path.suffix in {".py", ".toml"}}
    assert files == package | {"flexcpu/_C.so"}


def test_a_wheel_names_no_folder_of_the_build(wheel, tmp_path):
    module = wheel.extract("flexcpu/_C.so", tmp_path)
    assert run_path(module) == INSTALLED


def test_a_wheel_loads_with_torch_and_is_bound_to_its_version(wheel):
    (info,) = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
    assert "[torch.backends]\nflexcpu = flexcpu:_autoload" in wheel.read(f"{info}/entry_points.txt").decode()
    metadata = wheel.read(f"{info}/METADATA").decode()
    assert "Requires-Dist: torch<2.14,>=2.13\n" in metadata
    assert "Requires-Dist: onednn-cpu-gomp==2023.2.0\n" in metadata


def test_a_source_archive_can_be_built(tmp_path):
    code = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, tmp_path], cwd=ROOT, check=True, capture_output=True, timeout=600)
    (archive,) = tmp_path.glob("flexcpu-*.tar.gz")
    with tarfile.open(archive) as contents:
        names = {name.partition("/")[2] for name in contents.getnames()}
    needed = {
        str(path.relative_to(ROOT)) for top in ("csrc", "cmake") for path in (ROOT / top).rglob("*") if path.is_file()
    }
    assert needed | {"CMakeLists.txt", "setup.py", "pyproject.toml"} <= names
