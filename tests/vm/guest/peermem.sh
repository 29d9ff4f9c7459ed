# SPDX-License-Identifier: BSD-2-Clause
# For cases of the kernel module and of GPU memory: the module, and the stand-ins for what it is used with, all in
# /guest/modules; the driver's libcuda, and what soft-RoCE lacks, in /guest/gpu.

module_file() # NAME
{
	echo "/guest/modules/$1.ko"
}

loaded() # MODULE
{
	[ -d "/sys/module/$1" ]
}

# In the order in which they may go.
unload_all()
{
	for module in peerlane_peermem standin_core standin_nvidia_open standin_nvidia_closed standin_nvidia_old \
		standin_gpu; do
		! loaded $module || rmmod $module || return
	done
}

standins() # FLAVOUR [PARAMETER]: of the driver, open, closed or old; of IB core
{
	unload_all && insmod "$(module_file standin_gpu)" && insmod "$(module_file "standin_nvidia_$1")" &&
		insmod "$(module_file standin_core)" $2
}

# Loads the module, or another under its name, runs a command, and unloads it: that works if nobody uses it.
with_module() # NAME 'PARAMETER...' COMMAND...
{
	insmod "$(module_file "$1")" $2 || return
	shift 2
	"$@"
	status=$?
	cat /proc/driver/peerlane_peermem
	rmmod peerlane_peermem || return
	return $status
}

# Loading it fails, and the log says why.
refuses() # NAME 'PARAMETER...' PATTERN
{
	dmesg -C
	if insmod "$(module_file "$1")" $2; then
		echo "it is loaded all the same"
		return 1
	fi
	dmesg | tee log
	grep -q "$3" log
}

logged() # PATTERN COMMAND...
{
	pattern=$1
	shift
	dmesg -C
	"$@" || return
	dmesg >log
	tail -n 5 log
	grep -q "$pattern" log
}

# Many refusals in a row: what is logged is limited, what is counted is not.
limited()
{
	dmesg -C
	for run in 1 2 3 4; do
		peermem_cases strangers || return
	done
	lines=$(dmesg | grep -c 'peerlane_peermem: .*cannot pin')
	cat /proc/driver/peerlane_peermem
	echo "$lines lines"
	[ "$lines" -gt 0 ] && [ "$lines" -lt 30 ] && grep -qx 'not_ours 28' /proc/driver/peerlane_peermem
}

missing_interfaces()
{
	unload_all && refuses unversioned '' 'ib_core has no interface for peer memory' &&
		insmod "$(module_file standin_gpu)" && insmod "$(module_file standin_core)" &&
		refuses peerlane_peermem '' 'there is no NVIDIA driver'
}

# IB core asked it for memory while it was registering; it did not go to the driver with that.
is_new()
{
	grep -q '^version [0-9]' /proc/driver/peerlane_peermem && grep -qx 'not_ours 0' /proc/driver/peerlane_peermem
}

parameters()
{
	standins open && refuses peerlane_peermem peerdirect_support=2 'peerdirect_support is 0 or 1, not 2' &&
		refuses peerlane_peermem persistent_api_support=-1 'persistent_api_support is 0 or 1' &&
		with_module peerlane_peermem '' is_new || return
	# The first client and the second; with the second, the first goes as well, and so may IB core.
	standins open && refuses peerlane_peermem name=/ 'cannot be' && refuses peerlane_peermem name= 'cannot be' &&
		refuses peerlane_peermem name=$(printf %061d 0) 'cannot be' &&
		logged 'client other_nc$' with_module peerlane_peermem name=other true && grep -q 'client other$' log &&
		logged 'client nv_mem_nc$' with_module peerlane_peermem '' true && grep -q 'client nv_mem$' log || return
	for number in 1 2; do
		standins open refuse=$number && refuses peerlane_peermem '' 'IB core refuses the client' &&
			[ ! -e /proc/driver/peerlane_peermem ] || return
	done
}

# Both flavours of the driver, and modules that were built for either; and some that may not be used.
flavours()
{
	for flavour in open closed; do
		standins $flavour && with_module peerlane_peermem '' peermem_cases whole &&
			with_module closed '' peermem_cases whole || return
	done
	refuses broken_gpl '' 'Unknown symbol synchronize_rcu' && refuses stale '' 'disagrees about version' &&
		refuses unversioned '' 'no symbol version'
}

# A copy that must be found out by the walk.
broken() # NAME PARAMETER
{
	standins open "$2" && insmod "$(module_file "broken_$1")" persistent_api_support=0 || return
	peermem_walk broken
}

# The same, by a case.
broken_case() # NAME CASE
{
	standins open && insmod "$(module_file "broken_$1")" persistent_api_support=0 || return
	if peermem_cases "$2"; then
		echo "nothing is found"
		return 1
	fi
	unload_all
}

memory_used()
{
	sed -n 's/^SUnreclaim: *\([0-9]*\) .*/\1/p' /proc/meminfo
}

# 10000 regions, after some that fill caches, and less than 16 bytes for each of them are left.
cycles()
{
	peermem_cases cycles || return
	before=$(memory_used)
	peermem_cases cycles || return
	after=$(memory_used)
	echo "kernel memory: $before kB, then $after kB"
	[ $((after - before)) -lt 160 ]
}

# A copy that leaves a table of each of them.
cycles_of_leaky()
{
	standins open && insmod "$(module_file broken_leaky)" persistent_api_support=0 || return
	if cycles; then
		echo "nothing is missed"
		return 1
	fi
	unload_all
}

unload_in_use()
{
	peermem_verbs hold 3 >held &
	pid=$!
	until grep -q holding held; do
		alive $pid || return
		sleep 0.1
	done
	grep -q '^regions 3' /proc/driver/peerlane_peermem || return
	if rmmod peerlane_peermem; then
		echo "it was unloaded while in use"
		return 1
	fi
	kill -KILL $pid
	wait $pid
	until grep -q '^regions 0' /proc/driver/peerlane_peermem; do
		sleep 0.1
	done
	grep -q '^bytes 0' /proc/driver/peerlane_peermem
}

says_of_module() # STATUS PATTERN
{
	peerlane check --json >checked
	[ "$(row peer-module)" = "$1" ] && grep -q "$2" checked && return
	echo "peer-module is $(row peer-module), not $1, or there is no \"$2\""
	cat checked
	return 1
}

# What `peerlane check` knows of it: that it is not there, what is registered, what it refused.
known_to_check()
{
	unload_all && says_of_module none '' && standins open && insmod "$(module_file peerlane_peermem)" &&
		says_of_module OK 'version [0-9.]*: 0 regions of 0 bytes are registered, 0 were' || return
	peermem_verbs hold 3 >held &
	pid=$!
	until grep -q holding held; do
		alive $pid || return
		sleep 0.1
	done
	says_of_module OK ': 3 regions of [1-9][0-9]* bytes are registered, 3 were' || return
	kill -KILL $pid
	wait $pid
	peermem_cases failures && says_of_module WARN 'it refused [1-9]' && rmmod peerlane_peermem
}

near() # WAY
{
	peermem_verbs near $server 7471 "$1"
}

# With the emulated GPU, whose memory the card reaches by a dma-buf, by its address, or not at all.
with_gpu() # dmabuf|address|staged 'PARAMETER OF THE MODULE...' COMMAND...
{
	way=$1
	parameters=$2
	shift 2
	standins open || return
	(
		export LD_LIBRARY_PATH=/guest/gpu
		case $way in
		dmabuf)
			export LD_PRELOAD=/guest/gpu/roce_dmabuf.so
			"$@"
			;;
		address) with_module peerlane_peermem "$parameters" "$@" ;;
		staged) "$@" ;;
		esac
	)
}

# For a kernel with kmemleak, which looks at what is older than five seconds, and twice at what changes.
no_leaks()
{
	[ -e /sys/kernel/debug/kmemleak ] || mount -t debugfs debug /sys/kernel/debug || return
	for pass in 1 2; do
		sleep 6
		echo scan >/sys/kernel/debug/kmemleak || return
	done
	cat /sys/kernel/debug/kmemleak | tee leaks
	! grep -q 'unreferenced object' leaks
}

# A copy that forgets memory, which the walk does not see.
forgets() # NAME
{
	broken "$1" ''
	unload_all || return
	if no_leaks; then
		echo "nothing is missed"
		return 1
	fi
	grep -q 'unreferenced object' leaks
}

# A way is proven; which one is to be taken depends on what was measured.  What is saved says the same.
routes() # WAY
{
	peerlane routes --size 256K --save profile.json >shown
	status=$?
	cat shown
	grep -q "rxe0 *$1 .*B/s.*B/s" shown || return
	case $1 in
	staged) [ $status = 3 ] ;;
	*) [ $status = 0 ] || [ $status = 3 ] ;;
	esac || return
	peerlane routes --replay profile.json >again
	[ $? = $status ] && cmp shown again
}

# What was proven and saved, and then changed, is gone by, or why not, in the receipts.
by_profile() # TEXT SED-SCRIPT
{
	echo 0123456789abcdef0123456789abcdef >/etc/machine-id
	peerlane routes --size 256K --save profile.json >shown
	[ $? != 1 ] || return
	# All as fast, so that the direct way is the one to take.
	sed -i 's/"bytes_per_second": *[1-9][0-9]*/"bytes_per_second": 1/' profile.json
	sed -i "$2" profile.json
	export PEERLANE_ROUTES=$PWD/profile.json
	bench --op write --memory cuda --size 64K --iterations 20 && grep "$1" result
}

# What the check says of the GPU and the device, and of each way; with the driver gone, of neither.
check_gpu()
{
	gpu=$(gpu_address) && with_gpu dmabuf '' peerlane check --json >checked
	grep -A 20 '"routes"' checked
	for wanted in "\"gpu\": \"$gpu\"" '"gpu_model": "stand-in 0"' '"device": "rxe0"' '"works": "yes"'; do
		grep -q "$wanted" checked || return
	done
	[ "$(row gpu-model)" = OK ] && [ "$(row gpu-dmabuf)" = OK ] && [ "$(row card-dmabuf)" = OK ] || return
	with_gpu staged '' peerlane check --json >checked
	grep -q 'takes no dma-bufs (it was asked' checked && [ "$(row card-dmabuf)" != OK ] || return
	unload_all && peerlane check --json >checked
	grep -q 'There is no GPU' checked
}

# Loads the stand-ins, and prints where the GPU is.
gpu_address()
{
	standins open || return
	for device in /sys/bus/pci/drivers/nvidia/*:*; do
		echo "${device##*/}"
	done
}

# Where the GPU and the card are by the PCI tree, and by a file that knows better.
topo_gpu()
{
	gpu=$(gpu_address) && peerlane topo && peerlane topo --json >found || return
	card=$(sed -n '/"nics"/,$s/.*"id": "\(.*\)",/\1/p' found | head -n 1)
	grep -q "\"id\": \"$gpu\"" found && grep -q '"class": "PHB"' found && grep -q '"topology_file": null' found || {
		cat found
		return 1
	}
	cat >machine.xml <<-END
		<system version="1"><cpu numaid="0" affinity="1" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
		<pci busid="0000:f0:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
		<pci busid="$gpu" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
		<gpu dev="0" sm="90" rank="0" gdr="1"/></pci>
		<pci busid="$card" class="0x020000" link_speed="32.0 GT/s PCIe" link_width="16">
		<nic><net name="rxe0" dev="0" speed="100000" port="1" guid="0x0" maxconn="100" gdr="1"/></nic></pci>
		</pci></cpu></system>
	END
	export NCCL_TOPO_FILE=$PWD/machine.xml
	peerlane topo >found && cat found && grep -q 'PIX[*]' found && grep -q "come from $NCCL_TOPO_FILE" found || return
	peerlane check >found
	grep 'best card.*PIX' found
}
