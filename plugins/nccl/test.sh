#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# test.sh [PLUGIN]: proves the plugin on the GPUs of one host, with P2P and shared memory off. If no path is given, it builds
# the plugin first. It runs nccl-tests (content checked) with all GPUs in one process and with a process for each rank, and
# beside them PyTorch (torch_test.py) on two of these GPUs. A run passes only if the plugin says that it sent at least as many
# bytes as the largest size.
# It uses the GPUs of CUDA_VISIBLE_DEVICES only, if that is set.
# On a host with one GPU two processes share it, and nothing runs with two GPUs of one process. NCCL refuses two ranks on a GPU
# of one host, so that each process names a host of its own (NCCL_HOSTID).
#   NCCL_TESTS          folder with all_reduce_perf and others; without it nccl-tests is left out
#   NCCL_TESTS_LAUNCH   command that starts the ranks of nccl-tests built with MPI, one for each GPU, such as "mpirun -np 4";
#                       without it nccl-tests runs in one process only
#   TORCH_CASES         cases of torch_test.py, such as "kill,ddp" (all)
#   LIMIT               seconds for all runs (300)
# The exit status is 1 if a run failed, was wrong, or did not use the plugin, 2 if nccl-tests cannot start. See
# try.sh for speed.
set -u
cd "$(dirname "$0")/../.." || exit 1
if [ $# -eq 0 ]; then
	tools/configure build && ninja -C build plugins/nccl/libnccl-net-peerlane.so || exit 1
	set -- build/plugins/nccl/libnccl-net-peerlane.so
fi
plugin=$(realpath "$1")
failed=0
largest=$((256 << 20))
export NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_NVLS_ENABLE=0 NCCL_NET=Peerlane NCCL_NET_PLUGIN=$plugin
export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET

# check LOG TEXT STATUS SECONDS LIMIT: judges the output of a run of nccl-tests.
check()
{
	local wrong rate sent reason

	wrong=$(grep -o '# Out of bounds values : .*' "$1")
	sent=$(grep -o 'NET/Peerlane : sent [0-9]* bytes' "$1" | awk '{ sum += $4 } END { printf "%.0f", sum }')
	rate=$(awk '$1 ~ /^[0-9]+$/ && $2 ~ /^[0-9]+$/ { last = $8 } END { print last }' "$1")
	if [ "$3" -eq 0 ] && [[ $wrong == *OK* ]] && grep -q 'via NET/Peerlane' "$1" && [ "$sent" -ge "$largest" ]; then
		printf '%-46s passed %3d s, largest size %s GB/s\n' "$2" "$4" "$rate"
		return
	fi
	reason="exit status $3"
	[ "$3" -ne 124 ] || reason="not finished in $5 s"
	printf '%-46s FAILED %3d s: %s, %s, %s bytes sent\n' "$2" "$4" "$reason" "${wrong:-no result}" "$sent"
	grep -E 'WARN|rror|Out of bounds' "$1" | head -12
	failed=1
}

# measure TEXT COMMAND...: runs a program of nccl-tests in what is left of the time, at most 60 s.
measure()
{
	local text=$1 begin=$SECONDS limit=$((end - SECONDS)) log

	shift
	[ $limit -gt 0 ] || { printf '%-46s FAILED: not run, the time is over\n' "$text"; failed=1; return; }
	[ $limit -lt 60 ] || limit=60
	log=$(mktemp)
	timeout $limit "$@" >"$log" 2>&1
	check "$log" "$text" $? $((SECONDS - begin)) $limit
	rm -f "$log"
}

# perf PROGRAM TEXT [VARIABLE=VALUE...]: runs a program of nccl-tests in one process, and in one for each rank.
perf()
{
	local program=$1 text=$2
	local sizes=(-b 8 -e "$largest" -f 32 -c 1 -n 3 -w 1)
	local all=(-g "$gpus")

	shift 2
	# With all GPUs in one thread nccl-tests groups the rounds of a hypercube, each of which needs the data of the one before,
	# and finds wrong values on more than two GPUs over any network (issue 356 of nccl-tests).
	[ "$program" != hypercube_perf ] || all=(-t "$gpus" -g 1)
	if [ "$gpus" -ne 1 ]; then
		measure "$program, one process $text" env "$@" "$NCCL_TESTS/$program" "${all[@]}" "${sizes[@]}" $options
	fi
	if [ -n "${NCCL_TESTS_LAUNCH:-}" ]; then
		measure "$program, processes $text" \
			env "$@" $NCCL_TESTS_LAUNCH "${share[@]}" "$NCCL_TESTS/$program" -g 1 "${sizes[@]}" $options
	fi
}

# must_start PROGRAM: ends the script if the program cannot be loaded or run.
must_start()
{
	local output status

	output=$("$NCCL_TESTS/$1" -h 2>&1)
	status=$?
	[ $status -ne 0 ] || return 0
	echo "test.sh: $NCCL_TESTS/$1 does not start: exit status $status" >&2
	echo "$output" | head -5 >&2
	echo "Build nccl-tests for this machine, and add the folders of libnccl.so.2 and libcudart to LD_LIBRARY_PATH." >&2
	exit 2
}

gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
# nvidia-smi shows GPUs that the programs do not.
if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then
	IFS=, read -ra visible <<<"$CUDA_VISIBLE_DEVICES"
	gpus=${#visible[@]}
fi
# Without nvidia-smi.
[ "$gpus" -ne 0 ] || gpus=2
share=()
if [ "$gpus" -eq 1 ]; then
	export NCCL_TESTS_DEVICE=0
	# Open MPI and MPICH number the processes in these variables.
	share=(sh -c 'NCCL_HOSTID=rank$OMPI_COMM_WORLD_RANK$PMI_RANK exec "$@"' sh)
	if [ -n "${NCCL_TESTS:-}" ] && [ -z "${NCCL_TESTS_LAUNCH:-}" ]; then
		echo "test.sh: nccl-tests needs two GPUs, or NCCL_TESTS_LAUNCH for two processes on one" >&2
		exit 2
	fi
fi
programs="all_reduce sendrecv alltoall reduce_scatter all_gather broadcast hypercube"
for program in ${NCCL_TESTS:+$programs}; do
	must_start "${program}_perf"
done
end=$((SECONDS + ${LIMIT:-300}))
python3 plugins/nccl/torch_test.py --limit $((end - SECONDS)) ${TORCH_CASES:+--only "$TORCH_CASES"} "$plugin" 2>&1 &
torch=$!
if [ -n "${NCCL_TESTS:-}" ]; then
	options=
	for program in $programs; do
		perf ${program}_perf ""
	done
	perf all_reduce_perf "tcp" PEERLANE_FABRIC=tcp
	perf all_reduce_perf "GPU memory" PEERLANE_GPU_MEMORY=1
	perf sendrecv_perf "GPU memory" PEERLANE_GPU_MEMORY=1
	options="-G 3"
	perf all_reduce_perf "CUDA graph"
	options=
	for algorithm in Ring Tree; do
		perf all_reduce_perf "$algorithm Simple" NCCL_ALGO=$algorithm NCCL_PROTO=Simple
	done
	# The kernels of two processes take turns of milliseconds on one GPU, and LL moves some KiB in a turn.
	[ "$gpus" -ne 1 ] || largest=$((8 << 20))
	for algorithm in Ring Tree; do
		perf all_reduce_perf "$algorithm LL" NCCL_ALGO=$algorithm NCCL_PROTO=LL
	done
	perf sendrecv_perf "tcp LL" PEERLANE_FABRIC=tcp NCCL_PROTO=LL
fi
wait $torch || failed=1
exit $failed
