# The commands of this project; CMake and scripts/ do the work. `make` builds, `make test` tests.

BUILD  ?= build
JOBS   ?= $(shell nproc)
PREFIX ?= /usr/local
TYPE   ?= Release
# Further settings for CMake, such as -DCY_WITH_MPI=OFF; taken when BUILD is made.
CMAKE_FLAGS ?=

# ISA=avx2 with test, check or demo: all of it as on a processor of that level, in build-avx2.
ifneq ($(and $(ISA),$(filter test check demo,$(MAKECMDGOALS))),)
BUILD := build-$(ISA)
CMAKE_FLAGS += -DCY_MAX_ISA=$(ISA)
endif

.PHONY: all program setup setup-tests demo check test test-long bench equivalence parity install debug \
	tidy tidy-quick format coverage reference dist clean

all: $(BUILD)/CMakeCache.txt
	@cmake --build $(BUILD) -j $(JOBS)

# The program alone, without the tests.
program: $(BUILD)/CMakeCache.txt
	@cmake --build $(BUILD) -j $(JOBS) --target cyclotron

$(BUILD)/CMakeCache.txt:
	@cmake -S . -B $(BUILD) -DCMAKE_BUILD_TYPE=$(TYPE) $(CMAKE_FLAGS) >/dev/null

setup:
	@scripts/setup.sh

setup-tests:
	@scripts/setup.sh tests

# Text in, a model that speaks out. SETUP=no installs nothing, TEXT=FILE takes another text.
demo:
	@BUILD=$(BUILD) CMAKE_FLAGS='$(CMAKE_FLAGS)' SETUP=$(SETUP) TEXT=$(TEXT) scripts/demo.sh

# What a developer runs at every change, what needs no build first. Two tests more than cores at a time: some wait for launchers,
# which take a second to end a job.
check: tidy-quick all
	@cd $(BUILD) && ctest --output-on-failure -j $$(($(JOBS) + 2)) -LE 'long|slow|evidence'

# Every test but the longest. EVIDENCE=yes adds the label `evidence`, as .ci/run does: 16 ranks against
# one, sanitizers, fuzzers, 64 MB, the demo. A skipped test that tests/skips.txt does not name is a failure.
test: setup-tests all
	@JOBS=$$(($(JOBS) + 1)) scripts/test.sh $(BUILD) -LE '^(long$(if $(filter yes,$(EVIDENCE)),,|evidence))$$'

# Sanitizers, fuzzers, every mesh: hours are fine. PARTS="meshes thread" takes some of it.
test-long: setup-tests all
	@scripts/test_long.sh $(PARTS)

# Logits, gradients, losses and text against Hugging Face transformers, family by family.
parity: all
	@mkdir -p $(BUILD)/parity
	@scripts/parity.sh $(BUILD)

# Tables and JSON in build/bench. PARTS="comm overlap" takes some of it; CHECK=yes holds the figures to
# bench/bounds.txt and to the machine's baseline, BASELINE=store keeps them as that baseline; ISA=avx2
# caps the instruction set.
bench: $(BUILD)/CMakeCache.txt
	@cmake --build $(BUILD) -j $(JOBS) --target cyclotron benches
	@PARTS="$(PARTS)" CHECK=$(CHECK) BASELINE=$(BASELINE) ISA=$(ISA) scripts/bench.sh $(BUILD)

# One training on every mesh of 1, 2, 4 and 8 ranks and some of 16, with one line a mesh: within a
# bound in fast mode, to the bit in strict mode.
equivalence: program
	@scripts/equivalence_all.sh $(BUILD)

# Program, library, headers, cyclotron.pc, CMake package, and what there is of manual and completion.
install: program
	@cmake --install $(BUILD) --prefix $(PREFIX)

# Sanitizers in all of it, in build-debug.
debug:
	@$(MAKE) --no-print-directory BUILD=build-debug TYPE=Debug \
		CMAKE_FLAGS='-DCY_SANITIZE=address,undefined $(CMAKE_FLAGS)' all

tidy:
	@scripts/tidy.sh

# The tests of sizes, layers, words and documents: seconds, and no build.
tidy-quick:
	@for name in limits layers banned docs figures faults; do \
		SOURCE=$(CURDIR) bash tests/tidy/test_$$name.sh || { echo "tidy.$$name failed"; exit 1; }; \
	done

format:
	@git ls-files '*.c' '*.h' | xargs clang-format -i

coverage:
	@scripts/coverage.sh

# The public headers as HTML, in build/reference.
reference:
	@scripts/reference.sh $(BUILD)/reference

# A release archive that builds and passes `make check` by itself.
dist:
	@scripts/dist.sh

clean:
	@rm -rf build build-*
