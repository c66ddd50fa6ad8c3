# Makefile - the front door: every target builds what it needs in build/ through CMake.
BUILD ?= build
JOBS  ?= $(shell nproc)

.PHONY: build demo test verify docs clean setup bench bench-%

build: $(BUILD)/CMakeCache.txt
	@cmake --build $(BUILD) -j$(JOBS)

$(BUILD)/CMakeCache.txt: CMakeLists.txt
	@cmake -S . -B $(BUILD) -DCMAKE_BUILD_TYPE=Release

setup:
	@scripts/setup.sh

demo: setup
	@$(MAKE) --no-print-directory build
	@scripts/demo.sh $(BUILD)/ckl

test: setup
	@$(MAKE) --no-print-directory build
	@scripts/test.sh $(BUILD)

verify: build
	@$(BUILD)/ckl verify

# every suite on a GPU, into bench/results/ and the tables made from it
bench: build
	@scripts/bench_all.sh $(BUILD)/ckl

# bench-gemm, bench-elementwise-add: the operator's suite on the best device present
bench-elementwise-add: build
	@$(BUILD)/ckl bench --suite bench/suites/add.txt

bench-gemm: build
	@$(BUILD)/ckl bench --suite bench/suites/gemm-f16.txt

bench-%: build
	@$(BUILD)/ckl bench --suite bench/suites/$*.txt

docs: setup
	@scripts/docs.sh $(BUILD)

clean:
	@cmake -E rm -rf $(BUILD) build-sanitize
