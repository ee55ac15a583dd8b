# The commands of this project; CMake does the work. `make` builds, `make test` tests.

BUILD  ?= build
JOBS   ?= $(shell nproc)
PREFIX ?= /usr/local
TYPE   ?= Release

.PHONY: all setup check test test-long debug format clean

all: $(BUILD)/CMakeCache.txt
	@cmake --build $(BUILD) -j $(JOBS)

$(BUILD)/CMakeCache.txt:
	@cmake -S . -B $(BUILD) -DCMAKE_BUILD_TYPE=$(TYPE) >/dev/null

setup:
	@scripts/setup.sh

# What a developer runs at every change.
check: all
	@cd $(BUILD) && ctest --output-on-failure -j $(JOBS) -LE 'long|slow'

test: setup all
	@cd $(BUILD) && ctest --output-on-failure -j $(JOBS) -LE long

test-long: setup all
	@cd $(BUILD) && ctest --output-on-failure

debug:
	@$(MAKE) BUILD=build-debug TYPE=Debug all

format:
	@git ls-files '*.c' '*.h' | xargs clang-format -i

clean:
	@rm -rf build build-*
