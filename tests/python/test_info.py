"""python -m flexcpu."""

import json
import subprocess
import sys

import torch

from flexcpu import info


def run(*args):
    return subprocess.run([sys.executable, "-m", "flexcpu", *args], capture_output=True, text=True, check=True).stdout


def test_json():
    found = json.loads(run("--json"))
    assert found["versions"]["torch"] == torch.__version__ and found["versions"]["oneDNN"].startswith("3.")
    assert found["simd"]["active"] in found["simd"]["compiled"] == ["baseline", "avx2", "avx3"]
    assert "sse4_2" in found["cpu"]["features"] and found["cpu"]["processors"] >= 1
    assert found["threads"] >= 1 and found["fallback"] == "silent"
    assert len(found["libraries"]["libgomp"]) == 1 and len(found["libraries"]["libdnnl"]) == 1
    assert found["memory"]["total"] == torch.flex.mem_get_info()[1]
    assert found["environment"]["FLEXCPU_SIMD"]["permitted"] == ["baseline", "avx2", "avx3"]


def test_text():
    text = run()
    found = info.collect()
    libraries = found["libraries"]["libgomp"]
    for word in (*found["versions"].values(), found["cpu"]["name"], *libraries, "FLEXCPU_FALLBACK"):
        assert word in text


def test_help():
    assert "--json" in run("--help")
