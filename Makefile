# Makefile - the front door: every target builds what it needs in build/ through CMake.
BUILD ?= build
JOBS  ?= $(shell nproc)
MAKEFLAGS += --no-print-directory

# where there is Ninja, CMake makes files for it: a sixth less work than make's
ifneq ($(shell command -v ninja),)
export CMAKE_GENERATOR ?= Ninja
endif

.PHONY: build ckl demo test test-full test-gpu fuzz verify docs clean setup setup-python install deb wheel bench bench-%

build: $(BUILD)/CMakeCache.txt
	@cmake --build $(BUILD) -j$(JOBS)

# the laboratory alone, without the library: the fast way while a kernel is written
ckl: $(BUILD)/CMakeCache.txt
	@cmake --build $(BUILD) -j$(JOBS) --target ckl

$(BUILD)/CMakeCache.txt: CMakeLists.txt
	@cmake -S . -B $(BUILD) -DCMAKE_BUILD_TYPE=Release

setup:
	@scripts/setup.sh

setup-python:
	@scripts/setup.sh python

# library, headers, ckl, its man page and completions; `make deb` packs the same
PREFIX ?= /usr/local
install: build
	@cmake --install $(BUILD) --prefix $(PREFIX)

deb: build
	@scripts/setup.sh deb
	@cd $(BUILD) && cpack -G DEB

# the Python package, into dist/
wheel: setup-python
	@scripts/wheel.sh build-venv/bin/python

demo: setup
	@$(MAKE) ckl
	@scripts/demo.sh $(BUILD)/ckl

test: setup-python
	@$(MAKE) build
	@scripts/test.sh $(BUILD)

# also every fill of large problems, five seeds, every forced kernel assembled, and the long unit tests
test-full: setup-python
	@$(MAKE) build
	@scripts/test.sh --full $(BUILD)

# on a GPU: every case, streams and graphs, the largest sizes, compute-sanitizer, a soak
test-gpu: build
	@cmake --build $(BUILD) -j$(JOBS) --target unit_gpu
	@scripts/test_gpu.sh $(BUILD)

# libFuzzer over everything that takes text, MINUTES each; needs clang
MINUTES ?= 10
fuzz:
	@scripts/fuzz.sh $(MINUTES)

verify: ckl
	@$(BUILD)/ckl verify

# every suite on a GPU, into bench/results/ and the tables made from it
bench: build
	@scripts/bench_all.sh $(BUILD)/ckl

# the suites again, compared with the committed results
bench-regress: build
	@scripts/bench_regress.sh $(BUILD)/ckl

# random problems of what users have, into bench/results/sample/ and the tables made from it
bench-sample: build
	@scripts/bench_sample.sh --ckl $(BUILD)/ckl
	@scripts/update_performance.py

# bench-gemm, bench-elementwise-add: the operator's suite on the best device present
bench-elementwise-add: build
	@$(BUILD)/ckl bench --suite bench/suites/add.txt

bench-gemm: build
	@$(BUILD)/ckl bench --suite bench/suites/gemm-f16.txt

bench-%: build
	@$(BUILD)/ckl bench --suite bench/suites/$*.txt

# tune-gemm: searches every problem of the operator's suite, and keeps what is faster for this user
tune-gemm: build
	@$(BUILD)/ckl tune --suite bench/suites/gemm-f16.txt

tune-%: build
	@$(BUILD)/ckl tune --suite bench/suites/$*.txt

docs: setup
	@scripts/docs.sh $(BUILD)

clean:
	@cmake -E rm -rf $(BUILD) build-clang build-sanitize build-thread build-fuzz
