# Targets for developers. Each step leaves a stamp and runs again only when a dependency has changed.
#
#   make demo     build, then run the main example (examples/mpm88.py)
#   make test     Rust tests, Python tests, every example against numpy
#   make check    formatting, lints, types
#   make bench    micro-benchmarks: launches, compile time, throughput
#   make docs     pages about the Rust code, and a check of the guide's links
#   make wheel    a wheel with LLVM inside, in dist/, tried in a fresh environment
#   make wheels   the same for every Python 3.10 to 3.13 that is installed
#   make clean    removes everything that was built

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
CARGO ?= cargo
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps

RUST_SOURCES := Cargo.toml Cargo.lock .cargo/config.toml $(shell find crates -name '*.rs' -o -name '*.cpp' -o -name Cargo.toml)
PYTHON_DIRS := python examples benches tests/python tests/fuzz tools

.PHONY: help setup build demo test test-rust test-python check bench docs wheel wheels clean

help:
	@sed -n '3,10s/^# *//p' Makefile

# ---------------------------------------------------------------- prerequisites
setup: $(STAMPS)/tools

$(STAMPS)/system: tools/system-packages
	@command -v $(CARGO) >/dev/null || { echo "error: Rust is not installed (https://rustup.rs)" >&2; exit 1; }
	PYTHON=$(PYTHON) tools/system-packages
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "error: Python 3.10 or newer is needed")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/tools: $(STAMPS)/system tools/requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement tools/requirements.txt
	@touch $@

# The package is installed in place: Python files need no rebuild, Rust files do.
$(STAMPS)/build: $(STAMPS)/tools pyproject.toml $(RUST_SOURCES)
	PATH=$(abspath $(BIN)):$$PATH VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin develop --release --quiet
	@touch $@

build: $(STAMPS)/build

# ---------------------------------------------------------------- running
demo: $(STAMPS)/build
	$(BIN)/python examples/mpm88.py --out out/mpm88.gif

test: test-rust test-python

# nextest does not run doc tests, which include code that must not compile. Tests of the whole workspace use its build:
# those of one crate would compile what it depends on again, with other features.
test-rust: $(STAMPS)/system
	if $(CARGO) nextest --version >/dev/null 2>&1; then \
	    $(CARGO) nextest run --workspace --no-fail-fast --status-level fail && \
	    $(CARGO) test --workspace --doc --quiet; \
	else \
	    $(CARGO) test --workspace --no-fail-fast --quiet; \
	fi

# -r prints why each skipped test was skipped, and the names of failures. One worker runs all tests of a group (pytest.mark.xdist_group).
PYTEST := $(BIN)/python -m pytest -rsfE -n 2 --dist loadgroup

# Pass 2: a device whose memory the host cannot address, emulated on the CPU.
SEPARATE_TESTS := $(addprefix tests/python/, \
    test_fields.py test_quantized_types.py test_sparse_levels.py test_meshes.py test_ndarray.py \
    test_layouts.py test_matrix_values.py calls distributed/test_refused_loops.py \
    streams/test_stream_objects.py)

# Pass 3: a stand-in for HIP's library, without an AMD GPU.
STANDIN_TESTS := $(addprefix tests/python/, \
    test_fields.py test_devices.py \
    test_quantized_types.py test_sparse_levels.py test_meshes.py test_ndarray.py test_matrix_values.py calls \
    test_failed_checks.py \
    test_interop.py test_device_interop.py test_inspect.py test_program.py test_shared_memory.py test_math.py \
    distributed/test_refused_loops.py \
    test_algorithms.py test_loop_bounds.py test_guarded_iterations.py test_persistent_loops.py reverse_mode \
    test_recorded_launches.py \
    test_scattered_sums.py streams test_narrow_atomics.py simt)

# Pass 4: Mesa's lavapipe, a Vulkan driver on the CPU.
VULKAN_TESTS := $(addprefix tests/python/, \
    test_fields.py test_quantized_types.py test_sparse_levels.py test_meshes.py test_ndarray.py \
    test_matrix_values.py test_layouts.py test_math.py \
    test_loop_bounds.py test_program.py test_shared_memory.py test_algorithms.py calls test_failed_checks.py \
    test_debug_mode_results.py test_blocked_sums.py test_print_formats.py test_coarsened_loops.py \
    test_guarded_iterations.py \
    test_narrow_atomics.py \
    streams/test_stream_order.py streams/test_stream_objects.py streams/test_stream_schedules.py \
    streams/test_stream_sections.py streams/test_stream_threads.py streams/test_stream_messages.py \
    streams/test_captured_graphs.py streams/test_graph_updates.py streams/test_stream_gradients.py \
    streams/test_stream_stress.py streams/test_random_captured_graphs.py streams/test_concurrency.py \
    streams/test_order_of_launches.py reverse_mode/test_loop_trips.py simt)

# Pass 5: the same with the features and limits that Vulkan has on Metal.
PORTABILITY_TESTS := $(addprefix tests/python/, \
    test_fields.py test_ndarray.py test_math.py test_loop_bounds.py test_shared_memory.py test_algorithms.py \
    test_coarsened_loops.py test_blocked_sums.py test_narrow_atomics.py test_failed_checks.py calls \
    streams/test_stream_order.py streams/test_stream_sections.py streams/test_captured_graphs.py simt)

# Last passes: machine code of four AMD chips in an emulator, through the stand-in. One chip with 64 threads in a wave and
# one with 32 run all of these; their relatives run the tests of shared memory and of cooperating threads.
EMULATED_TESTS := $(addprefix tests/python/, \
    test_shared_memory.py test_quantized_types.py test_sparse_levels.py test_math.py test_matrix_values.py \
    test_blocked_sums.py test_narrow_atomics.py test_fuzzed_kernels.py test_persistent_loops.py simt)

# What each pass is called. `make test-python-vulkan` runs one.
PASSES := $(addprefix test-python-,cpu separate standin vulkan portability wave32 gfx942 gfx1100 gfx90a gfx1200)
.PHONY: $(PASSES) passes

test-python: $(PASSES)

$(PASSES): $(STAMPS)/build

test-python-cpu:
	$(PYTEST) tests/python

test-python-separate:
	$(PYTEST) --arch cpu-separate $(SEPARATE_TESTS)

test-python-standin:
	OCTANTS_TEST_SEEDS=5 $(PYTEST) --arch amdgpu-standin $(STANDIN_TESTS)

test-python-vulkan:
	OCTANTS_TEST_SEEDS=5 $(PYTEST) --arch vulkan $(VULKAN_TESTS)

test-python-portability:
	$(PYTEST) --arch vulkan-portability $(PORTABILITY_TESTS)

test-python-wave32:
	HIP_STANDIN_ARCH=hostgpu-wave32 $(PYTEST) --arch amdgpu-standin tests/python/simt

test-python-gfx942 test-python-gfx1100: test-python-%:
	HIP_STANDIN_ARCH=$* $(PYTEST) --arch amdgpu-emulator $(EMULATED_TESTS)

test-python-gfx90a test-python-gfx1200: test-python-%:
	HIP_STANDIN_ARCH=$* $(PYTEST) --arch amdgpu-emulator tests/python/simt tests/python/test_shared_memory.py \
	    tests/python/test_math.py

# For .ci/run, where each pass is a step: all run, also after one that fails.
passes:
	@echo $(PASSES)

check: $(STAMPS)/tools
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings
	$(BIN)/ruff format --check $(PYTHON_DIRS)
	$(BIN)/ruff check $(PYTHON_DIRS)
	$(BIN)/mypy

bench: $(STAMPS)/build
	$(BIN)/python benches/run.py $(ARGS)

docs: $(STAMPS)/tools
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" $(CARGO) doc --workspace --no-deps --document-private-items --quiet
	$(BIN)/python tools/check_links.py
	@echo "written: target/doc, start at target/doc/octants_ir/index.html; the guide is docs/index.md"

wheel: $(STAMPS)/tools pyproject.toml
	tools/system-packages valgrind
	$(BIN)/python tools/build_wheels.py $(abspath $(BIN))/python

wheels: $(STAMPS)/tools pyproject.toml
	tools/system-packages valgrind
	$(BIN)/python tools/build_wheels.py

clean:
	rm -rf target dist out $(VENV) .pytest_cache .mypy_cache .ruff_cache
	find python examples benches tests -name __pycache__ -prune -exec rm -rf {} +
	rm -f python/octants/*.so
