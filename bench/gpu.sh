#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# gpu.sh [BUILD]: on a machine with a GPU, runs the scenarios on its memory and measures GPU to GPU from process to
# process over the local fabric, next to the driver's own copies, and over loopback tcp, next to host to host and, where PyTorch is there, NCCL's socket transport.  BUILD is the folder with what was built
# (default: build, which is built if it is not there).
set -u
cd "$(dirname "$0")/.."
build=${1:-build}
bench=$PWD/bench
if [ ! -x "$build/peerlane" ]; then
	tools/configure "$build" && ninja -C "$build" || exit 1
fi
cd "$build" || exit 1
failed=0

rate()
{
	timeout 120 ./peerlane bench --fabric tcp --progress thread --duration 1 --repeat 5 --json "$@" 2>/dev/null |
		python3 -c 'import json, sys; print(json.load(sys.stdin)["results"][0]["bytes_per_second"] / 1e9)'
}

line()
{
	printf '%-62s %s\n' "$1" "$2"
}

./peerlane version
if ! ./peerlane version --json | grep -q '"pci"'; then
	echo "no GPU: nothing to measure"
	exit 77
fi

echo
echo "Scenarios over tcp, with buffers in GPU memory"
for run in "alloc thread" "alloc manual" "pool thread-key" "mapped manual-encrypted" "mapped thread"; do
	set -- $run
	log=$(timeout 300 tests/test_scenarios --memory "$1" --setting "$2" 2>&1)
	passed=$(grep -c '\[       OK' <<<"$log")
	line "  $1, $2: passed" "$passed"
	if grep -q 'FAILED' <<<"$log"; then
		grep -vE 'RUN|  OK |LINE|ERROR' <<<"$log" | grep -v '^\[=' | head -${LINES_SHOWN:-12}
		failed=1
	fi
done
log=$(timeout 300 tests/test_gpu 2>&1) || failed=1
line "  what is about GPUs alone: passed, skipped" \
	"$(grep -c '\[       OK' <<<"$log"), $(grep -c '\[  SKIPPED \] [a-z]' <<<"$log")"
grep -E 'check failed|ended by' <<<"$log"

for run in "alloc thread" "alloc manual"; do
	set -- $run
	log=$(timeout 300 tests/test_scenarios --fabric local --one-sided --memory "$1" --setting "$2" 2>&1)
	line "  local fabric, $1, $2: passed" "$(grep -c '\[       OK' <<<"$log")"
	if grep -q 'FAILED' <<<"$log"; then
		grep -vE 'RUN|  OK |LINE|ERROR' <<<"$log" | grep -v '^\[=' | head -${LINES_SHOWN:-12}
		failed=1
	fi
done
log=$(timeout 300 tests/test_gpu_local 2>&1) || failed=1
line "  two processes, local fabric: passed, skipped" \
	"$(grep -c '\[       OK' <<<"$log"), $(grep -c '\[  SKIPPED \] [a-z]' <<<"$log")"
grep -E 'check failed|ended by' <<<"$log"

echo
if [ "$(./peerlane version --json | grep -c '"pci"')" -gt 1 ]; then
	timeout 100 bench/gpu_peer 0 1 || failed=1
fi
timeout 100 bench/gpu_peer 0 0 || failed=1

echo
echo "Rates of one direction, GB/s, two processes, loopback tcp, median of 5 runs of a second"
host=$(rate --size 1G)
gpu=$(rate --size 1G --memory cuda --validate)
line "  write 1 GiB, host to host" "$host"
line "  write 1 GiB, GPU to GPU (at least 25)" "$gpu"
line "  ratio (at least 0.85)" "$(python3 -c "print('%.2f' % ($gpu / $host))")"
line "  read 1 GiB, host to host" "$(rate --size 1G --op read)"
line "  read 1 GiB, GPU to GPU" "$(rate --size 1G --op read --memory cuda)"
line "  send 256 MiB, GPU to GPU" "$(rate --size 256M --op send --memory cuda)"
for size in 64K 1M 16M; do
	line "  write $size, host to host; GPU to GPU" "$(rate --size $size); $(rate --size $size --memory cuda)"
done
echo
echo "Latency, 8 bytes sent, one way"
timeout 60 ./peerlane bench --fabric tcp --latency --op send --size 8 --duration 1 | tail -2
timeout 60 ./peerlane bench --fabric tcp --latency --op send --size 8 --duration 1 --memory cuda | tail -1

if python3 -c 'import torch' 2>/dev/null; then
	echo
	echo "NCCL's socket transport, send and receive of 1 GiB, GB/s (both ends on one GPU, taken for two hosts)"
	export NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_IB_DISABLE=1
	line "  as it comes" "$(timeout 90 python3 "$bench/nccl_socket.py" 29555 2>/dev/null | tail -1)"
	line "  4 threads of 4 sockets" "$(NCCL_NSOCKS_PERTHREAD=4 NCCL_SOCKET_NTHREADS=4 \
		timeout 90 python3 "$bench/nccl_socket.py" 29556 2>/dev/null | tail -1)"
fi
exit $failed
