#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# gpu.sh [BUILD]: runs the scenarios on GPU memory, and measures transfers from GPU to GPU between two processes.  With PyTorch and
# pytest it also runs the tests of the package for Python, by the wheel of BUILD unless PYTHONPATH names the package.  Over the
# local fabric it compares them with the driver's own copies; over loopback tcp with transfers from host to host and, if
# PyTorch is installed, with NCCL's socket transport.  BUILD is the build folder (default: build); it is built if it does not
# exist.  The variable KINDS lists the kinds of memory to use, of alloc (cuMemAlloc), pool, mapped and managed (default: all).
set -u
cd "$(dirname "$0")/.." || exit 1
build=${1:-build}
benchmarks=$PWD/benchmarks
repository=$PWD
if [ ! -x "$build/peerlane" ]; then
	tools/configure "$build" && ninja -C "$build" || exit 1
fi
cd "$build" || exit 1
kinds=${KINDS:-alloc pool mapped managed}
for kind in alloc pool mapped managed; do
	[[ " $kinds " == *" $kind "* ]] || left_out+="${left_out:+|}*$kind*"
done
[ -n "${left_out:-}" ] && export TEST_CASES="!($left_out)"
failed=0

# rate OPTION...: median rate of a write in GB/s
rate()
{
	timeout 120 ./peerlane bench --fabric tcp --progress thread --duration 0.5 --repeat 5 --json "$@" 2>/dev/null |
		python3 -c 'import json, sys; print(json.load(sys.stdin)["results"][0]["bytes_per_second"] / 1e9)'
}

# latency OPTION...: median and 99th percentile in us
latency()
{
	timeout 60 ./peerlane bench --fabric tcp --latency --op send --size 8 --duration 1 --json "$@" 2>/dev/null |
		python3 -c 'import json, sys; l = json.load(sys.stdin)["results"][0]["latency_us"]; print(l["p50"], l["p99"])'
}

# counts LOG: numbers of passed and of skipped cases.  The summary, which lists skipped cases again, is ignored.
counts()
{
	sed '/^\[  PASSED  \]/,$d' <<<"$1" | awk '/^\[       OK/ { ok++ } /^\[  SKIPPED \]/ { skipped++ }
		END { print ok + 0 ", " skipped + 0 }'
}

line()
{
	printf '%-62s %s\n' "$1" "$2"
}

./peerlane version
gpus=$(./peerlane version --json | grep -c '"pci"')
if [ "$gpus" -eq 0 ]; then
	echo "no GPU: nothing to measure"
	exit 77
fi

echo
echo "Scenarios over tcp, with buffers in GPU memory"
for run in "alloc thread" "alloc manual" "pool thread-key" "mapped manual-encrypted" "mapped thread"; do
	set -- $run
	[[ " $kinds " == *" $1 "* ]] || continue
	log=$(timeout 300 tests/test_scenarios --memory "$1" --setting "$2" 2>&1)
	passed=$(grep -c '\[       OK' <<<"$log")
	line "  $1, $2: passed" "$passed"
	if grep -q 'FAILED' <<<"$log"; then
		grep -vE 'RUN|  OK |LINE|ERROR' <<<"$log" | grep -v '^\[=' | head -${LINES_SHOWN:-12}
		failed=1
	fi
done
# Real copies of the GPU, over a stand-in for a card that takes no dma-buf.
if [ -x tests/card/test_card_staging ]; then
	log=$(env -u TEST_CASES STANDIN_CARD=mlx4 LD_LIBRARY_PATH="$PWD/tests/card${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
		timeout 300 tests/card/test_card_staging 2>&1) || failed=1
	line "  staging over verbs, stand-in card: passed, skipped" "$(counts "$log")"
fi
for program in test_gpu test_gpu_stream test_gpu_frames test_gpu_gather test_gpu_kept; do
	log=$(timeout 300 "tests/$program" 2>&1) || failed=1
	line "  tests of GPUs only, $program: passed, skipped" "$(counts "$log")"
	grep -E 'check failed|ended by' <<<"$log"
done

for run in "alloc thread" "alloc manual" "mapped thread"; do
	set -- $run
	[[ " $kinds " == *" $1 "* ]] || continue
	log=$(timeout 300 tests/test_scenarios --fabric local --one-sided --memory "$1" --setting "$2" 2>&1)
	line "  local fabric, $1, $2: passed" "$(grep -c '\[       OK' <<<"$log")"
	if grep -q 'FAILED' <<<"$log"; then
		grep -vE 'RUN|  OK |LINE|ERROR' <<<"$log" | grep -v '^\[=' | head -${LINES_SHOWN:-12}
		failed=1
	fi
done
programs=test_gpu_local
[[ " $kinds " == *" mapped "* ]] && programs="$programs test_gpu_share"
for program in $programs; do
	log=$(timeout 300 "tests/$program" 2>&1) || failed=1
	line "  two processes, local fabric, $program: passed, skipped" "$(counts "$log")"
	grep -E 'check failed|ended by' <<<"$log"
done

if python3 -c 'import torch, pytest' 2>/dev/null; then
	package=${PYTHONPATH:-} from=$package
	if [ -z "$package" ]; then
		package=$(mktemp -d)
		trap 'rm -rf "$package"' EXIT
		wheel=$(python3 "$repository/bindings/python/make_wheel.py" . "$package") && python3 -m zipfile -e "$wheel" "$package" || failed=1
		from=${wheel##*/}
	fi
	log=$(cd "$repository/tests/python" && PATH=$OLDPWD:$PATH PYTHONPATH=$package \
		timeout 200 python3 -m pytest -q -p no:cacheprovider gpu 2>&1) || { failed=1; tail -30 <<<"$log"; }
	line "  package for Python, $from" "$(tail -1 <<<"$log")"
fi

echo
if [ "$gpus" -gt 1 ]; then
	timeout 100 benchmarks/gpu_peer 0 1 || failed=1
fi
timeout 100 benchmarks/gpu_peer 0 0 || failed=1
[ "$gpus" -gt 1 ] && { timeout 100 benchmarks/gpu_frames 0 1 || failed=1; }
[ "$gpus" -gt 1 ] && { timeout 100 benchmarks/gpu_blocks 0 1 || failed=1; }
timeout 100 benchmarks/gpu_blocks 0 0 || failed=1
timeout 100 benchmarks/gpu_frames 0 0 || failed=1
for kind in mapped pool; do
	[[ " $kinds " == *" $kind "* ]] || continue
	timeout 100 benchmarks/gpu_peer 0 0 1024 $kind || failed=1
done

echo
echo "Rates in one direction, GB/s, two processes, loopback tcp, median of 5 runs of 0.5 s"
host=$(rate --size 1G)
gpu=$(rate --size 1G --memory cuda --validate)
locked=$(timeout 60 ./peerlane bench --fabric tcp --progress thread --duration 1 --size 1G --memory cuda --json 2>/dev/null |
	python3 -c 'import json, sys; print(json.load(sys.stdin)["staging_locked"] >> 20)')
line "  write 1 GiB, host to host" "$host"
line "  write 1 GiB, GPU to GPU (at least 25)" "$gpu"
if [ "$gpus" -gt 1 ]; then
	line "  write 1 GiB, GPU 0 to GPU 1" "$(rate --size 1G --memory cuda:0 --peer-memory cuda:1 --validate)"
fi
line "  ratio (at least 0.85)" "$(python3 -c "print('%.2f' % ($gpu / $host))")"
line "  host memory locked for staging, MiB in each process (below 256)" "$locked"
line "  read 1 GiB, host to host" "$(rate --size 1G --op read)"
line "  read 1 GiB, GPU to GPU" "$(rate --size 1G --op read --memory cuda)"
line "  send 256 MiB, GPU to GPU" "$(rate --size 256M --op send --memory cuda)"
for size in 64K 1M 16M; do
	line "  write $size, host to host; GPU to GPU" "$(rate --size $size); $(rate --size $size --memory cuda)"
done
echo
echo "Latency, 8 bytes sent, one way, us: median, 99 %"
line "  host to host" "$(latency)"
line "  GPU to GPU" "$(latency --memory cuda)"
if [ "$gpus" -gt 1 ]; then
	line "  GPU 0 to GPU 1" "$(latency --memory cuda:0 --peer-memory cuda:1)"
fi

# Rate of NCCL and its ratio, or the last line of its output.
nccl()
{
	local output figure

	output=$(python3 "$benchmarks/nccl_socket.py" --timeout 90 2>&1)
	figure=$(awk '$3 == "GB/s" { print $2 }' <<<"$output")
	if [ -n "$figure" ]; then
		printf '%s; Peerlane: %s times that' "$figure" "$(python3 -c "print('%.2f' % ($gpu / $figure))")"
	else
		printf 'none: %s' "$(grep -v '^ *$' <<<"$output" | tail -1)"
	fi
}

echo
if python3 -c 'import torch' 2>/dev/null; then
	echo "NCCL's socket transport, send and receive of 1 GiB, GB/s (both processes on one GPU, which NCCL takes for two hosts)"
	export NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_IB_DISABLE=1
	line "  default settings" "$(nccl)"
	line "  4 threads of 4 sockets" "$(NCCL_NSOCKS_PERTHREAD=4 NCCL_SOCKET_NTHREADS=4 nccl)"
	line "  16 threads of 4 sockets" "$(NCCL_NSOCKS_PERTHREAD=4 NCCL_SOCKET_NTHREADS=16 nccl)"
else
	echo "PyTorch is not installed: NCCL is not measured"
fi
exit $failed
