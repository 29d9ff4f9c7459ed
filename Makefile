# SPDX-License-Identifier: BSD-2-Clause
# Targets that call Meson and the scripts in tools: see `make help`.

PREFIX ?= /usr/local
export PREFIX

all:
	@tools/configure build
	@ninja -C build

help:
	@echo 'make            build the library and the command, build/peerlane'
	@echo 'make setup      install the packages that building needs (Debian, Ubuntu)'
	@echo 'make demo       set up, build, and run build/peerlane demo, which transfers data'
	@echo 'make test       set up, build, and run every test; the last line counts them'
	@echo 'make install    into PREFIX (now $(PREFIX)), under DESTDIR'
	@echo 'make uninstall  remove what the last `make install` of this folder installed'
	@echo 'make clean      remove all build folders'
	@echo
	@echo 'For work on Peerlane itself; each prints failures and counts:'
	@echo 'make asan       tests with AddressSanitizer and UndefinedBehaviorSanitizer'
	@echo 'make asan-python'
	@echo '                all tests of the package for Python, by the debug interpreter, with these sanitizers'
	@echo 'make python-next'
	@echo '                the same tests with the Python of the next Debian release, or of SUITE'
	@echo 'make tsan       tests with ThreadSanitizer'
	@echo 'make clang      tests of a build with clang, with warnings as errors'
	@echo 'make valgrind   tests under valgrind'
	@echo 'make aarch64    build for aarch64, and tests in an emulator; ALL=1 runs all C programs there'
	@echo 'make fresh      demo, unit tests and tests of the command in a clean system, as root and as a user'
	@echo 'make vm-test    tests in virtual machines with soft-RoCE'
	@echo 'make vm-all     vm-test, further cases, and vm-endurance'
	@echo 'make vm-asan    the verbs fabric in virtual machines, with AddressSanitizer'
	@echo 'make vm-valgrind'
	@echo '                the same under valgrind: 20 minutes'
	@echo 'make vm-endurance'
	@echo '                50 link flaps, and large transfers over bad cables, in virtual machines'
	@echo 'make vm-debug   tests of the kernel module in a kernel with KASAN, lockdep and kmemleak;'
	@echo '                builds the kernel first: 15 minutes'
	@echo 'make vm-next    tests of the kernel module in the next series of the kernel'
	@echo 'make vm-boot    boot a system with the package of the kernel module; make packages first'
	@echo 'make kernels    check the style of the kernel module, and build it for the kernels of several Debian releases'
	@echo 'make fuzz       each fuzz target for FUZZ_SECONDS (60), with another seed each time'
	@echo 'make soak       one server under mixed clients with faults for MINUTES (30)'
	@echo 'make card-soak  the verbs fabric on stand-in cards with faults, by seed, for MINUTES (30)'
	@echo 'make faults     each fault at each phase of a transfer; writes the table of docs/reliability.md'
	@echo 'make mutants    change checks of the sources, one at a time, and list changes that no test notices (hours)'
	@echo 'make bench      measure, and compare with other tools if they are installed'
	@echo 'make bench-guard'
	@echo '                fail if small operations cost more than in the last landed commit, or in BASE: 10 minutes'
	@echo 'make bench-verbs'
	@echo '                compare the verbs fabric with perftest, in a virtual machine'
	@echo 'make packages   build .deb and .rpm of the last commit in build/packages'
	@echo 'make repository'
	@echo '                a folder from which apt and dnf install these packages, signed by KEY if it is set'
	@echo 'make packages-test'
	@echo '                install, use and remove the packages in a clean system'
	@echo 'make style      check words, names, includes and lengths; tools/style --list names each place'
	@echo 'make format     apply .clang-format'
	@echo
	@echo 'WERROR=1 makes warnings errors.  One test: meson test -C build NAME'
	@echo 'CONTRIBUTING.md has more.'

setup:
	@tools/setup build

demo:
	@tools/setup build
	@tools/configure build
	@echo 'building build/peerlane: some minutes on two cores'
	@ninja -C build --quiet peerlane
	@build/peerlane demo

test:
	@tools/setup build test vm fresh valgrind python-debug
	@tools/setup test-more 2>/dev/null || echo 'tests with promtool and sshd are skipped: see tools/setup test-more'
	@tools/run-tests

asan asan-python:
	@tools/setup build test python-debug
	@tools/run-tests $@

tsan clang:
	@tools/setup build test
	@tools/run-tests $@

python-next:
	@tools/setup build test fresh
	@tools/run-tests $@

valgrind:
	@tools/setup build test valgrind
	@tools/run-tests valgrind

aarch64:
	@tools/setup build test aarch64
	@tools/run-tests aarch64

fresh:
	@tools/setup fresh
	@tests/fresh/run

vm-test:
	@tools/setup build test vm
	@tools/configure build
	@ninja -C build --quiet
	@tests/vm/run

vm-all:
	@tools/setup build test vm
	@tools/configure build
	@ninja -C build --quiet
	@tests/vm/run '*'

vm-asan:
	@tools/setup build test vm
	@tools/configure build-asan
	@ninja -C build-asan --quiet
	@tests/vm/run --under asan

vm-valgrind:
	@tools/setup build test vm valgrind
	@tools/configure build
	@ninja -C build --quiet
	@tests/vm/run --under valgrind

vm-endurance:
	@tools/setup build test vm
	@tools/configure build
	@ninja -C build --quiet
	@tests/vm/run 'endurance*'

vm-debug vm-next:
	@tools/setup build test vm $@
	@tools/configure build
	@ninja -C build --quiet
	@tests/vm/run --kernel $(@:vm-%=%) 'peermem*'

vm-boot:
	@tools/setup vm packages-test
	@tests/vm/boot

kernels:
	@tools/setup kernels
	@tests/kernels/style
	@tests/kernels/run

fuzz:
	@tools/setup build test
	@FUZZ_SECONDS=$${FUZZ_SECONDS:-60} FUZZ_SEED=$${FUZZ_SEED:-0} tools/run-tests fuzz

soak:
	@tools/setup build test
	@tools/configure build
	@ninja -C build peerlane
	@tests/soak/run --minutes $${MINUTES:-30}

card-soak:
	@tools/setup build test
	@tools/configure build
	@ninja -C build tests/card/test_card_seeds tests/card/libibverbs.so.1 tests/libcuda.so.1
	@LD_LIBRARY_PATH=build/tests/card:build/tests build/tests/card/test_card_seeds --minutes $${MINUTES:-30}

faults:
	@tools/setup build test
	@tools/configure build
	@ninja -C build
	@tests/faults/run --write

mutants:
	@tools/setup build test
	@tools/mutants $(MUTANTS)

bench: all
	@tools/setup build bench
	@benchmarks/run

bench-guard:
	@tools/setup build test valgrind
	@benchmarks/guard $${BASE:+--base "$$BASE"} $(GUARD)

bench-verbs: all
	@tools/setup build vm bench
	@benchmarks/verbs

packages:
	@tools/setup build packages
	@tools/packages

repository:
	@tools/setup repository
	@tools/repository

packages-test: packages
	@tools/setup packages-test repository
	@tests/packages/run
	@SUITE=trixie tests/packages/run

install: all
	@meson install -C build --no-rebuild
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" = 0 ]; then ldconfig; fi

# No script makes files that Meson would have to remind of.
uninstall:
	@ninja -C build uninstall >build/uninstall.log || { cat build/uninstall.log; exit 1; }
	@sed '/^Remember that files created by custom scripts/d' build/uninstall.log
	@rm build/uninstall.log
	@if [ "$$(id -u)" = 0 ]; then ldconfig; fi

style:
	@tools/style

format:
	@tools/setup format
	@{ tools/sources src '*.[ch]'; tools/sources include '*.h'; tools/sources tests '*.[ch]'; \
	tools/sources benchmarks '*.[ch]'; tools/sources docs '*.[ch]'; tools/sources kernel '*.[ch]'; \
	tools/sources plugins '*.[ch]'; } | xargs clang-format -i

clean:
	rm -rf build build-asan build-tsan build-clang build-fuzz build-aarch64

.PHONY: all help setup demo test asan asan-python tsan clang python-next valgrind aarch64 fresh vm-test vm-all vm-asan \
	vm-valgrind vm-endurance vm-debug vm-next vm-boot kernels fuzz soak card-soak faults mutants bench bench-guard bench-verbs \
	packages packages-test repository install uninstall style format clean
