# SPDX-License-Identifier: BSD-2-Clause
# Functions for cases of the kernel module and of GPU memory.  /guest/modules has the module and the stand-ins for a GPU,
# its driver and IB core.  /guest/gpu has the emulated libcuda, and the library that adds dma-bufs to soft-RoCE.

module_file() # NAME
{
	echo "/guest/modules/$1.ko"
}

loaded() # MODULE
{
	[ -d "/sys/module/$1" ]
}

# Unloads all modules, users before the modules that they use.
unload_all()
{
	for module in peerlane_peermem standin_core standin_nvidia_open standin_nvidia_closed standin_nvidia_old \
		standin_gpu; do
		! loaded $module || rmmod $module || return
	done
}

# Loads the stand-ins.  FLAVOUR of the driver: open, closed or old.  PARAMETER goes to the stand-in for IB core.
standins() # FLAVOUR [PARAMETER]
{
	unload_all && insmod "$(module_file standin_gpu)" && insmod "$(module_file "standin_nvidia_$1")" &&
		insmod "$(module_file standin_core)" $2
}

# Loads the module or a variant of it, runs a command, and unloads the module.  Unloading fails if it is still in use.
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

# Passes if loading the module fails and the kernel's log has the pattern.
refuses() # NAME 'PARAMETER...' PATTERN
{
	dmesg -C
	if insmod "$(module_file "$1")" $2; then
		echo "the module was loaded"
		return 1
	fi
	dmesg | tee log
	grep -q "$3" log
}

# Runs a command; passes if the kernel's log then has the pattern.
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

# Checks many refusals in a row: the number of log lines is limited, and the counter has all refusals.
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
		refuses peerlane_peermem '' 'no NVIDIA driver'
}

# Checks the counters after loading: IB core's request during registration must not have reached the driver.
is_new()
{
	grep -q '^version [0-9]' /proc/driver/peerlane_peermem && grep -qx 'not_ours 0' /proc/driver/peerlane_peermem
}

parameters()
{
	standins open && refuses peerlane_peermem peerdirect_support=2 'peerdirect_support is 0 or 1, not 2' &&
		refuses peerlane_peermem persistent_api_support=-1 'persistent_api_support is 0 or 1' &&
		with_module peerlane_peermem '' is_new || return
	# Lets IB core refuse the first or the second client.  In both cases no client and no /proc file may remain.
	standins open && refuses peerlane_peermem name=/ 'cannot be' && refuses peerlane_peermem name= 'cannot be' &&
		refuses peerlane_peermem name=$(printf %061d 0) 'cannot be' &&
		logged 'client other_nc$' with_module peerlane_peermem name=other true && grep -q 'client other$' log &&
		logged 'client nv_mem_nc$' with_module peerlane_peermem '' true && grep -q 'client nv_mem$' log || return
	for number in 1 2; do
		standins open refuse=$number && refuses peerlane_peermem '' 'IB core refuses the client' &&
			[ ! -e /proc/driver/peerlane_peermem ] || return
	done
}

# Checks modules built for either flavour of the driver with both flavours, and modules that must not load.
flavours()
{
	for flavour in open closed; do
		standins $flavour && with_module peerlane_peermem '' peermem_cases whole &&
			with_module closed '' peermem_cases whole || return
	done
	refuses broken_gpl '' 'Unknown symbol synchronize_rcu' && refuses stale '' 'disagrees about version' &&
		refuses unversioned '' 'no symbol version'
}

# Loads a copy of the module with a defect, which peermem_walk must detect.
broken() # NAME PARAMETER
{
	standins open "$2" && insmod "$(module_file "broken_$1")" persistent_api_support=0 || return
	peermem_walk broken
}

# Loads a copy of the module with a changed check.  Passes if peermem_cases fails; status 3 if nothing notices the change.
changed() # NAME
{
	[ -e "$(module_file "broken_$1")" ] || { echo "the module does not build with this change"; return 77; }
	for parameter in '' persistent_api_support=0; do
		standins open && insmod "$(module_file "broken_$1")" $parameter || return 2
		if ! peermem_cases; then
			# A region may be left, which keeps the modules in use: only new machines are without it then.
			unload_all || panic
			return 0
		fi
	done
	unload_all || return 2
	echo "no case noticed the change"
	return 3
}

# Loads a copy of the module with a defect, which a case of peermem_cases must detect.
broken_case() # NAME CASE
{
	standins open && insmod "$(module_file "broken_$1")" persistent_api_support=0 || return
	if peermem_cases "$2"; then
		echo "the defect was not detected"
		return 1
	fi
	unload_all
}

memory_used()
{
	sed -n 's/^SUnreclaim: *\([0-9]*\) .*/\1/p' /proc/meminfo
}

# Registers 10,000 regions twice.  The first run fills caches; the second may leave at most 16 bytes for each region.
cycles()
{
	peermem_cases cycles || return
	before=$(memory_used)
	peermem_cases cycles || return
	after=$(memory_used)
	echo "kernel memory: $before kB, then $after kB"
	[ $((after - before)) -lt 160 ]
}

# Checks that cycles() detects a copy of the module that leaks each region's scatter table.
cycles_of_leaky()
{
	standins open && insmod "$(module_file broken_leaky)" persistent_api_support=0 || return
	if cycles; then
		echo "the leak was not detected"
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
		echo "the module was unloaded while in use"
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
	echo "peer-module is $(row peer-module) and should be $1, or \"$2\" is missing"
	cat checked
	return 1
}

# Checks what `peerlane check` reports: no module, the number of regions, the number of refusals.
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

# Runs a command with the emulated GPU.  The card accesses GPU memory by dma-buf, by address, or not at all (staged).
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

# Fails if kmemleak finds a leak.  kmemleak reports objects older than 5 s, and needs a second scan for changed ones.
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

# Checks that kmemleak detects a copy of the module with a leak, which peermem_walk does not detect.
forgets() # NAME
{
	broken "$1" ''
	unload_all || return
	if no_leaks; then
		echo "the leak was not detected"
		return 1
	fi
	grep -q 'unreferenced object' leaks
}

# Checks that `peerlane routes` proves a transport, and that the replay of its profile prints the same.
routes() # TRANSPORT
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

# Saves a profile, edits it, and checks that receipts name the profile, or the reason why it does not apply.
by_profile() # TEXT SED-SCRIPT
{
	echo 0123456789abcdef0123456789abcdef >/etc/machine-id
	peerlane routes --size 256K --save profile.json >shown
	[ $? != 1 ] || return
	# With equal rates the library prefers the direct transport.
	sed -i 's/"bytes_per_second": *[1-9][0-9]*/"bytes_per_second": 1/' profile.json
	sed -i "$2" profile.json
	export PEERLANE_ROUTES=$PWD/profile.json
	bench --op write --memory cuda --size 64K --iterations 20 && grep "$1" result
}

# Checks what `peerlane check` reports of the GPU, the device and each transport; without the driver it finds no GPU.
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

# Loads the stand-ins and prints the GPU's PCI address.
gpu_address()
{
	standins open || return
	for device in /sys/bus/pci/drivers/nvidia/*:*; do
		echo "${device##*/}"
	done
}

# Checks the locations of the GPU and the card from the PCI tree, then from a topology file that overrides the tree.
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
