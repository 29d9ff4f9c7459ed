#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# test.sh [PLUGIN]: proves the plugin on two GPUs of one host, with P2P and shared memory off. If no path is given, it builds
# the plugin first. It runs nccl-tests (content checked) in one process and in two, and PyTorch (torch_test.py). A run passes only
# if the plugin says that it sent at least as many bytes as the largest size.
#   NCCL_TESTS          folder with all_reduce_perf and others; without it nccl-tests is left out
#   NCCL_TESTS_LAUNCH   command that starts two ranks of nccl-tests built with MPI, such as "mpirun -np 2"; without it nccl-tests
#                       runs with two GPUs of one process only
#   LIMIT               seconds for all (300)
# The exit status is 1 if a run failed, was wrong, or did not use the plugin. See try.sh for speed.
set -u
cd "$(dirname "$0")/../.." || exit 1
if [ $# -eq 0 ]; then
	tools/configure build && ninja -C build plugins/nccl/libnccl-net-peerlane.so || exit 1
	set -- build/plugins/nccl/libnccl-net-peerlane.so
fi
plugin=$(realpath "$1")
end=$((SECONDS + ${LIMIT:-300}))
failed=0
largest=$((256 << 20))
export NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_NVLS_ENABLE=0 NCCL_NET=Peerlane NCCL_NET_PLUGIN=$plugin
export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET

# check LOG TEXT STATUS: judges the output of a run of nccl-tests.
check()
{
	local wrong rate sent

	wrong=$(grep -o '# Out of bounds values : .*' "$1")
	sent=$(grep -o 'NET/Peerlane : sent [0-9]* bytes' "$1" | awk '{ sum += $4 } END { printf "%.0f", sum }')
	rate=$(awk '$1 ~ /^[0-9]+$/ && $2 ~ /^[0-9]+$/ { last = $8 } END { print last }' "$1")
	if [ "$3" -eq 0 ] && [[ $wrong == *OK* ]] && grep -q 'via NET/Peerlane' "$1" && [ "$sent" -ge "$largest" ]; then
		printf '%-58s passed, largest size %s GB/s\n' "$2" "$rate"
		return
	fi
	printf '%-58s FAILED: exit status %s, %s, %s bytes sent\n' "$2" "$3" "${wrong:-no result}" "$sent"
	grep -E 'WARN|rror|Out of bounds' "$1" | head -12
	failed=1
}

# perf PROGRAM TEXT [VARIABLE=VALUE...]: runs a program of nccl-tests in one process, and in two.
perf()
{
	local program=$1 text=$2 log
	local sizes=(-b 8 -e "$largest" -f 32 -c 1 -n 3 -w 1)

	shift 2
	log=$(mktemp)
	[ $SECONDS -lt $end ] || { echo "$program $text: not run, the time is over"; failed=1; return; }
	timeout 60 env "$@" "$NCCL_TESTS/$program" -g 2 "${sizes[@]}" $options >"$log" 2>&1
	check "$log" "$program, one process $text" $?
	if [ -n "${NCCL_TESTS_LAUNCH:-}" ]; then
		timeout 60 env "$@" $NCCL_TESTS_LAUNCH "$NCCL_TESTS/$program" -g 1 "${sizes[@]}" $options >"$log" 2>&1
		check "$log" "$program, two processes $text" $?
	fi
	rm -f "$log"
}

if [ -n "${NCCL_TESTS:-}" ]; then
	options=
	for program in all_reduce sendrecv alltoall reduce_scatter all_gather broadcast hypercube; do
		perf ${program}_perf ""
	done
	for algorithm in Ring Tree; do
		for protocol in LL Simple; do
			perf all_reduce_perf "$algorithm $protocol" NCCL_ALGO=$algorithm NCCL_PROTO=$protocol
		done
	done
	perf all_reduce_perf "tcp" PEERLANE_FABRIC=tcp
	perf sendrecv_perf "tcp LL" PEERLANE_FABRIC=tcp NCCL_PROTO=LL
	perf all_reduce_perf "GPU memory" PEERLANE_GPU_MEMORY=1
	perf sendrecv_perf "GPU memory" PEERLANE_GPU_MEMORY=1
	options="-G 3"
	perf all_reduce_perf "CUDA graph"
fi
PEERLANE_GPU_MEMORY=1 python3 plugins/nccl/torch_test.py --limit 90 --only sizes,graphs,ddp,kill "$plugin" || failed=1
left=$((end - SECONDS))
[ $left -gt 10 ] || left=10
python3 plugins/nccl/torch_test.py --limit $left "$plugin" || failed=1
exit $failed
