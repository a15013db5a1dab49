# On Debian 12 with python3.11, make and g++, `make demo` and `make test` do all the set-up. Debian packages that are
# missing are installed for root, and named to others.

PYTHON := $(or $(shell command -v python3.11),python3)
PIP    := .venv/bin/pip --disable-pip-version-check -q
CMAKE  := .venv/bin/cmake
SIMD   := $(shell grep -qw avx512vl /proc/cpuinfo && echo baseline avx2 avx3 || echo baseline avx2)
# Ops with kernels of their own, for the runs that compare instruction sets.
NATIVE := add sub mul true_divide div.no_rounding_mode fill zero_ clone contiguous to sum mean
# The folder that setup.py builds in.
BUILD   = build/$(shell .venv/bin/python -c 'import sys, importlib.metadata as m; \
	print(sys.implementation.cache_tag + "-torch" + m.version("torch"))')

export PATH := $(CURDIR)/.venv/bin:$(PATH)
# Nothing is fetched at run time.
export HF_HUB_OFFLINE := 1

.NOTPARALLEL:
.PHONY: help demo test build test-cpp test-conformance test-python test-asan clean

help:
	@sed -n 's/^\([a-z-]*\):[^#]*## /make \1\t/p' Makefile | expand -t 24

demo: build ## trains, embeds sentences and takes snapshots on both devices; pictures in .demo
	.venv/bin/python -m flexcpu.demo --out .demo

test: test-cpp test-conformance test-python ## every test

build: .venv/installed ## the extension, into flexcpu/; only what changed is compiled
	$(CMAKE) --build $(BUILD) --target flexcpu_extension
	$(CMAKE) --install $(BUILD) --prefix . --component python

test-cpp: build ## the kernels' tests, once for every instruction set, and storages under sanitizers
	$(CMAKE) -DFLEXCPU_BUILD_TESTS=ON $(BUILD)
	$(CMAKE) --build $(BUILD) --target flexcpu_tests \
		storage_stress_thread storage_stress_address block_cache_thread block_cache_address
	for simd in $(SIMD); do FLEXCPU_SIMD=$$simd $(BUILD)/tests/cpp/flexcpu_tests --gtest_brief=1 || exit 1; done
	cd $(BUILD) && ctest --output-on-failure -R 'storage_stress|block_cache'

test-conformance: build ## the device against stock CPU, and again for every lesser instruction set
	.venv/bin/python -m flexcpu.conformance --quick --json build/conformance.json
	for simd in $(filter-out $(lastword $(SIMD)),$(SIMD)); do FLEXCPU_SIMD=$$simd .venv/bin/python -m flexcpu.conformance \
		--full $(addprefix -k ,$(NATIVE)) --json build/conformance-$$simd.json || exit 1; done

test-python: build ## everything else
	.venv/bin/python -m pytest -q tests/python

# The sanitizer's own memory faults pages, which two tests count.
ASAN = LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libstdc++.so)" \
	ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 TORCH_DEVICE_BACKEND_AUTOLOAD=0 PYTHONPATH=build/asan/package
test-asan: build ## storages from Python, the extension under AddressSanitizer; not a part of test
	$(CMAKE) -S . -B build/asan -G Ninja -DCMAKE_BUILD_TYPE=Release -DPython_EXECUTABLE=$(CURDIR)/.venv/bin/python \
		-DCMAKE_CXX_FLAGS="-fsanitize=address -fno-omit-frame-pointer -g1"
	$(CMAKE) --build build/asan --target flexcpu_extension
	rm -rf build/asan/package && mkdir build/asan/package && cp -r flexcpu build/asan/package
	$(CMAKE) --install build/asan --prefix build/asan/package --component python
	$(ASAN) .venv/bin/python -m pytest -q tests/python/test_storage.py tests/python/test_sharing.py -k "not page"

clean: ## removes all that was made here
	rm -rf .venv .demo build flexcpu.egg-info flexcpu/_C.so

# The package comes last: without build isolation it takes the build tools from the environment. torch's exact version
# stands in pyproject.toml, and binds every later package.
.venv/installed: pyproject.toml setup.py .venv/requires.txt
	$(PIP) install --no-build-isolation -c .venv/requires.txt -e '.[test]'
	touch $@

.venv/requires.txt: pyproject.toml tools/system_packages.sh
	bash tools/system_packages.sh $(PYTHON)
	test -x .venv/bin/python || $(PYTHON) -m venv .venv
	.venv/bin/python -c 'import tomllib; tables = tomllib.load(open("pyproject.toml", "rb")); \
		print(*tables["build-system"]["requires"], sep="\n")' > $@.new
	$(PIP) install -r $@.new
	mv $@.new $@
