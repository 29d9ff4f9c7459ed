# SPDX-License-Identifier: BSD-2-Clause
# Shell functions of the cases in ../cases.py, read by the shell of each job.  A job runs in an empty folder.  It passes
# with status 0, is skipped with 77, and fails otherwise; the runner then prints its output.  Starting a program takes
# 50 ms on an emulated processor, so frequent steps use shell built-ins only.

# Address of the servers, on this machine or the other.
server=10.0.0.1
port=19875
if [ -e /sys/class/infiniband/rxe0/parent ]; then
	read -r interface </sys/class/infiniband/rxe0/parent
fi

# Tells the runner that the other end may begin.
ready()
{
	echo "$0 ready" >&3
}

# True if a process runs.  A process that has ended has no /proc/PID/exe.
alive() # PID
{
	[ -e "/proc/$1/exe" ]
}

# True if a program listens on a port of TCP or of the RDMA connection manager.
listening() # PORT
{
	suffix=$(printf :%04X "$1")
	for table in /proc/net/tcp /proc/net/tcp6; do
		while read -r _ address _ state _; do
			case $address-$state in
			*"$suffix-0A") return ;;
			esac
		done <$table
	done
	# The connection manager shows the port shortly before it accepts connections.
	rdma resource show cm_id 2>/dev/null | grep -q "LISTEN.*:$1 " && sleep 0.2
}

# Starts a command as $pid.  If $wanted is a port, waits until the command listens there, and reports that it is ready.
launch() # COMMAND...
{
	"$@" &
	pid=$!
	[ -n "$wanted" ] || return 0
	until listening "$wanted"; do
		alive $pid || return
		sleep 0.1
	done
	ready
}

# Starts a command as launch does, and waits for its end.
attended() # COMMAND...
{
	launch "$@"
	wait $pid
}

# Runs a server that ends by itself after its client.
serving() # PORT COMMAND...
{
	wanted=$1
	shift
	attended "$@"
}

# -- Setup

# Creates a soft-RoCE device on an interface; its name is rxe0 by default.
soft_roce() # INTERFACE ADDRESS [DEVICE]
{
	ip address add "$2/24" dev "$1" &&
		ip link set "$1" up &&
		modprobe rdma_rxe &&
		modprobe rdma_ucm &&
		add_device "$1" "${3:-rxe0}"
}

add_device() # INTERFACE DEVICE
{
	rdma link add "$2" type rxe netdev "$1" || return
	until gid_index "$2" >/dev/null; do
		sleep 0.1
	done
}

on_dummy() # ADDRESS
{
	modprobe dummy && ip link add d0 type dummy && soft_roce d0 "$1"
}

# Creates one soft-RoCE device (rxe0, rxe1, ...) for each cable, with these addresses.
on_cables() # ADDRESS...
{
	modprobe virtio_pci && modprobe virtio_net || return
	until [ "$(ls /sys/class/net | grep -vc '^lo$')" = $# ]; do
		sleep 0.1
	done
	number=0
	for interface in $(ls /sys/class/net | grep -v '^lo$'); do
		soft_roce "$interface" "$1" rxe$number || return
		number=$((number + 1))
		shift
	done
}

# Creates a soft-iWARP device on the cable.
soft_iwarp() # ADDRESS
{
	modprobe -a virtio_pci virtio_net ib_uverbs rdma_ucm libcrc32c && insmod /guest/modules/siw.ko || return
	until interface=$(ls /sys/class/net | grep -v '^lo$'); do
		sleep 0.1
	done
	ip address add "$1/24" dev "$interface" && ip link set "$interface" up && rdma link add siw0 type siw netdev "$interface"
}

# Prints the index of the GID with the IPv4 address, for RoCE v2.
gid_index() # [DEVICE]
{
	for index in 0 1 2 3; do
		read -r gid <"/sys/class/infiniband/${1:-rxe0}/ports/1/gids/$index"
		case $gid in
		*:ffff:0a00:*)
			echo $index
			return
			;;
		esac
	done
	return 1
}

# -- Programs of other projects

devinfo()
{
	ibv_devinfo -v -d rxe0 >info || return
	grep -E 'transport|state|active_mtu' info
	grep -q 'state:.*PORT_ACTIVE' info
}

pingpong() # ROUNDS [ADDRESS]
{
	rounds=$1
	shift
	ibv_rc_pingpong -d rxe0 -g "$(gid_index)" -n "$rounds" -c "$@"
}

# Runs rping.  At its end rping closes the channel that its own thread reads; the thread then may end the program with
# an error.  So an error at that point is ignored: the case checks rping's output.
pings() # SECONDS ARGUMENTS...
{
	seconds=$1
	shift
	timeout "$seconds" rping "$@" >pings 2>&1
	status=$?
	cat pings
	[ $status = 0 ] || grep -q '^rdma_get_cm_event: Bad file descriptor' pings || return $status
}

# Runs rping against a server that is killed.  It must notice that and end.  Its status then depends on its step.
pings_until_lost() # SECONDS ARGUMENTS...
{
	pings "$@"
	[ $? != 124 ] && grep -q 'DISCONNECT EVENT' pings
}

# -- Programs of Peerlane

# Sets the fabric of the commands that follow; skips the case if the build does not have it.
over() # FABRIC
{
	fabric=$1
	options="--key /guest/key --fabric $fabric"
	# Checks once for each machine.
	[ ! -e "/run/over-$1" ] || return 0
	if peerlane bench $options 127.0.0.1:1 2>&1 | grep 'FABRIC-UNKNOWN'; then
		exit 77
	fi
	: >"/run/over-$1"
}

# Runs scenarios; prints only the failed ones.
scenarios() # FABRIC ARGUMENT...
{
	fabric=$1
	shift
	hidden='^\[ RUN \|^\[       OK '
	if [ -n "$scenarios_here" ]; then
		# A failed scenario may end the program, so the names of started scenarios stay visible.
		hidden='^\[       OK '
		set -- --here "$@"
	fi
	set -- --slow --fabric "$fabric" --host $server "$@"
	if [ "$(test_scenarios --list "$@" | wc -l)" = 0 ]; then
		echo "no scenario matches: $*"
		return 1
	fi
	{
		test_scenarios "$@"
		echo $? >status
	} 2>&1 | grep --line-buffered -v "$hidden"
	return "$(cat status)"
}

# Runs cases of the NCCL plugin between processes; none may be skipped.
nccl_cases() # PROGRAM PATTERN
{
	NCCL_NET_PLUGIN=/guest/gpu/libnccl-net-peerlane.so NCCL_SOCKET_IFNAME=$interface TEST_CASES=$2 \
		"$1" >result 2>&1
	status=$?
	cat result
	[ $status = 0 ] && ! grep -q SKIPPED result
}

# Processes without privileges, which may reach each other's memory, and which may not.
nccl_ptrace_scopes()
{
	failed=0
	for scope in 0 1; do
		echo $scope >/proc/sys/kernel/yama/ptrace_scope && nccl_cases test_nccl_users ptrace_scope || failed=1
	done
	echo 0 >/proc/sys/kernel/yama/ptrace_scope
	return $failed
}

stream_hunt() # PATTERN
{
	TEST_CASES=$1 test_stream_hunt --fabric verbs --host $server --kills 3
}

# Runs a command during which the device must send fewer than LIMIT SEND messages.
fewer_sends() # LIMIT COMMAND...
{
	limit=$1
	shift
	counter=/sys/class/infiniband/rxe0/ports/1/hw_counters/rdma_sends
	read -r before <$counter && "$@" && read -r after <$counter || return
	echo "$((after - before)) messages"
	[ $((after - before)) -lt "$limit" ]
}

# Counts the calls of a function of the kernel from now on.  The probe is set once, and stays: each change of the kernel's code stops
# the other processors, and an emulated processor may not come back from that.
set_probe() # NAME FUNCTION
{
	tracing=/sys/kernel/tracing
	[ -e $tracing/kprobe_events ] || mount -t tracefs tracefs $tracing || return 77
	if ! grep -q "/$1 " $tracing/kprobe_events; then
		echo 0 >$tracing/options/record-cmd # more such changes
		echo "p:$1 $2" >>$tracing/kprobe_events || return 77
		echo 1 >$tracing/events/kprobes/$1/enable
	fi
}

# Prints the number of calls since the probe was set.
probe_hits() # NAME
{
	sed -n "s/^ *$1  *\([0-9]*\).*/\1/p" /sys/kernel/tracing/kprobe_profile
}

# Runs a command during which soft-RoCE must bind memory windows: the command would also pass without windows.
by_windows() # COMMAND...
{
	set_probe bind rxe_bind_mw || return
	bound=$(probe_hits bind)
	"$@" || return
	if [ "$(probe_hits bind)" -le "$bound" ]; then
		echo 'no window was bound'
		return 1
	fi
}

numbers()
{
	seq 1 1200000
}

serve_file()
{
	mkdir public && numbers >public/numbers && serving $port peerlane serve $options --once :$port public
}

get_file()
{
	peerlane get $options --verify $server numbers -o copy && numbers | cmp - copy
}

receive_file()
{
	mkdir inbox && serving $port peerlane serve $options --once --upload inbox :$port && numbers | cmp - inbox/numbers
}

put_file()
{
	numbers >numbers && peerlane put $options $server numbers
}

bench() # ARGUMENT...
{
	peerlane bench $options --json --validate --warmup 10 "$@" $server >result
	status=$?
	answer=$(cat result)
	echo "$answer"
	[ $status = 0 ] || return
	case $answer in
	*'"verified": false'*) return 1 ;;
	*'"verified": true'*) return 0 ;;
	esac
	return 1
}

# Runs 320 operations, 16 in flight, in lists of LENGTH.  Each list must be one call of the driver; at most 60 other
# calls are permitted.
post_lists() # LENGTH OPERATION
{
	set_probe posts rxe_post_send || return
	before=$(probe_hits posts)
	bench --op "$2" --size 8 --iterations 320 --warmup 0 --depth 16 --post-list "$1"
	status=$?
	calls=$(($(probe_hits posts) - before))
	echo "$calls calls for 320 operations"
	[ $status = 0 ] || return
	if [ "$1" = 1 ]; then
		[ "$calls" -ge 320 ]
	else
		[ "$calls" -ge $((320 / $1)) ] && [ "$calls" -le $((320 / $1 + 60)) ]
	fi
}

# Runs a benchmark server.  WRAPPER is a function such as `killed`; words that begin with -- are options.
bench_server() # [WRAPPER...|OPTION...]
{
	wanted=$port
	case ${1:---} in
	--*) attended peerlane bench $options --server --once "$@" :$port ;;
	*) "$@" peerlane bench $options --server --once :$port ;;
	esac
}

# Each step works over soft-RoCE, or its tool is not here. The kernel takes the memory of a killed server away before its
# connections.
first_hour()
{
	peerlane-first-hour --quick --device rxe0 && tar xzf first-hour.tar.gz || return
	cat first-hour/summary.txt
	[ "$(grep -c ': ok' first-hour/summary.txt)" -ge 24 ] && grep -q '"fabric": *"verbs"' first-hour/*-bench-write.txt &&
		grep -E -q 'PEER-LOST|RDMA-REMOTE-ACCESS' first-hour/*-killed-server.txt
}

# Runs `bench workflow`.  All ARMS methods must be verified, and received by the card alone without staging.
workflow() # DEVICE ARMS ARGUMENT...
{
	device=$1
	arms=$2
	shift 2
	peerlane bench workflow $options --json --compute "$device" --rounds 1 "$@" $server >result
	status=$?
	cat result
	[ $status = 0 ] && [ "$(grep -c '"verified": *true' result)" = "$arms" ] &&
		[ "$(grep -c '"route": *"direct"' result)" = "$arms" ] &&
		[ "$(grep -c '"host_bytes_staged": *0,' result)" = "$arms" ]
}

workflow_server()
{
	wanted=$port
	attended peerlane bench workflow $options --server --once :$port
}

# -- Faults.  A case that passes cleans up; after a failed case the runner starts new machines.

# Sets $bytes to the bytes that a cable has carried in both directions.
carried() # CABLE
{
	read -r sent <"/sys/class/net/$1/statistics/tx_bytes" && read -r bytes <"/sys/class/net/$1/statistics/rx_bytes" &&
		bytes=$((bytes + sent))
}

# Sets $sum to the bytes of all cables, as any of several rails may carry messages.
moved()
{
	sum=0
	for card in /sys/class/net/*; do
		if [ "$card" != /sys/class/net/lo ]; then
			carried "${card##*/}"
			sum=$((sum + bytes))
		fi
	done
}

# Waits until the cables have carried $enough bytes (default: 100,000), so that operations are in flight.
await_traffic()
{
	moved
	goal=$((sum + ${enough:-100000}))
	until [ $sum -gt $goal ]; do
		if ! alive $pid; then
			echo "the command ended before it caused traffic"
			return 1
		fi
		sleep 0.05
		moved
	done
}

# Causes a fault while a command runs; the command must continue, and pass.
during() # FAULT COMMAND...
{
	fault=$1
	shift
	launch "$@" && await_traffic && $fault || return
	if ! alive $pid; then
		wait $pid
		echo "status $?: the command ended before the fault"
		return 1
	fi
	wait $pid
}

# Kills a command while it causes traffic.
killed() # COMMAND...
{
	launch "$@" && await_traffic && kill -KILL $pid || return
	wait $pid
	[ $? = 137 ]
}

# Stops the command's process until its device has refused 40 messages (RNR NAK: no receive is posted), then continues
# it.  The sender retries after a pause.
stopped()
{
	counter=/sys/class/infiniband/rxe0/ports/1/hw_counters/send_rnr_err
	kill -STOP $pid || return
	read -r before <$counter
	until read -r now <$counter && [ $((now - before)) -ge 40 ]; do sleep 0.05; done
	kill -CONT $pid
}

link_down() # SECONDS
{
	ip link set "$interface" down && sleep "$1" && ip link set "$interface" up
}

# Takes the link down repeatedly, without waiting until it is in use again.
flaps() # SECONDS
{
	end=$(($(date +%s) + $1))
	until [ "$(date +%s)" -ge $end ]; do
		link_down 0.1 && sleep 0.4 || return
	done
}

# Waits until each device has a connected queue pair again, and the cables have carried $enough bytes.
await_recovery()
{
	set -- /sys/class/infiniband/*
	limit=$(($(date +%s) + 20))
	until pairs=$(rdma resource show qp | grep -c 'type RC state RTS') && [ "$pairs" -ge $# ]; do
		if ! alive $pid; then
			echo 'the command ended before it was connected again'
			return 1
		fi
		if [ "$(date +%s)" -gt $limit ]; then
			echo "$pairs of $# queue pairs are connected"
			return 1
		fi
		sleep 0.05
	done
	await_traffic
}

# Takes the links down in turn, COUNT times in total; each time after all links are in use.
flap_times() # COUNT INTERFACE...
{
	count=$1
	shift
	await_recovery || return
	for flap in $(seq "$count"); do
		interface=$1
		shift
		set -- "$@" "$interface"
		if ! link_down 0.1 || ! await_recovery; then
			echo "at flap $flap of $count"
			return 1
		fi
	done
	echo "$count flaps"
}

interfaces()
{
	cat /sys/class/infiniband/*/parent
}

# Causes a fault while a command runs that ends at SIGTERM; the command must then pass.
until_after() # FAULT COMMAND...
{
	fault=$1
	shift
	launch "$@" && await_traffic && $fault || return
	kill -TERM $pid
	wait $pid
}

# Runs the ledger's server; the second function also causes faults at the server, and then ends it.
keep_ledger() # [narrow]
{
	serving $port ledger "$fabric" "${1:-serve}" $server:$port
}

keep_ledger_until_after() # FAULT
{
	wanted=$port
	until_after "$1" ledger "$fabric" serve $server:$port
}

# Deletes a device; the command must continue with the others.
lose_card() # DEVICE
{
	rdma link delete "$1" && await_traffic
}

# Runs a command while tc-netem(8) disturbs outgoing packets.
with_netem() # SETTING COMMAND...
{
	setting=$1
	shift
	tc qdisc add dev "$interface" root netem $setting || return
	"$@"
	status=$?
	tc -s qdisc show dev "$interface" | tee discipline
	tc qdisc del dev "$interface" root || return
	case $setting in
	loss*) grep -q 'dropped [1-9]' discipline || return ;;
	esac
	return $status
}

# Runs a command while RoCE packets, and only these, are dropped: both ends have devices that do not reach each other.
without_roce() # COMMAND...
{
	tc qdisc add dev "$interface" root handle 1: prio && tc qdisc add dev "$interface" parent 1:3 netem loss 100% &&
		tc filter add dev "$interface" parent 1: protocol ip u32 match ip protocol 17 0xff \
			match ip dport 4791 0xffff flowid 1:3 || return
	"$@"
	status=$?
	tc -s qdisc show dev "$interface" | grep -A1 netem | tee dropped
	tc qdisc del dev "$interface" root && grep -q 'dropped [1-9]' dropped || return
	return $status
}

# Sends the packets of RoCE through band 4, and those of TCP, the control channel, through band 5 with a netem.
sort_packets()
{
	tc qdisc add dev "$interface" root handle 1: prio bands 5 && tc qdisc add dev "$interface" parent 1:5 handle 5: netem &&
		tc filter add dev "$interface" parent 1: protocol ip u32 match ip protocol 17 0xff \
			match ip dport 4791 0xffff flowid 1:4 &&
		tc filter add dev "$interface" parent 1: protocol ip u32 match ip protocol 6 0xff flowid 1:5
}

# Drops the packets of RoCE.  A queue that is full would return an error to soft-RoCE.  netem duplicates no packets while
# there is another netem.
drop_roce()
{
	tc qdisc add dev "$interface" parent 1:4 handle 4: netem loss 100%
}

disturb_control() # SETTING
{
	tc qdisc change dev "$interface" parent 1:5 handle 5: netem $1
}

# Runs a command while netem disturbs the control channel only.
with_control() # SETTING COMMAND...
{
	sort_packets && disturb_control "$1" || return
	shift
	"$@"
	status=$?
	tc -s qdisc show dev "$interface"
	tc qdisc del dev "$interface" root && return $status
}

# Breaks the connections of the device for some seconds, and waits until they are up again.  Needs sort_packets.
roce_pause() # SECONDS
{
	drop_roce && sleep "$1" && tc qdisc del dev "$interface" parent 1:4 && await_recovery
}

# Resets the control connection at both ends.
reset_control()
{
	ss -K dport = ":$port" | grep ":$port"
}

# Prints the numbers of the device's queue pairs, but not of those for messages of the connection manager.
pairs()
{
	rdma resource show qp | sed -n 's/.* lqpn \([0-9]*\) .* type RC .*/\1/p'
}

# True if this machine has a control connection to a server.
has_control()
{
	suffix=$(printf :%04X "$port")
	while read -r _ _ address state _; do
		case $address-$state in
		*"$suffix-01") return ;;
		esac
	done </proc/net/tcp
	return 1
}

# Resets the control connection while the first rail is being connected, which lasts 10 s with a long ACK timeout.  The
# client must fail with a name, and the same server must serve the next one.
reset_while_connecting() # COMMAND...
{
	wanted=
	sort_packets && drop_roce && launch must_fail PEER-LOST "$@" || return
	until has_control; do
		alive $pid || return
		sleep 0.1
	done
	sleep 3 && reset_control && wait $pid && tc qdisc del dev "$interface" root && "$@"
}

# Breaks the connections of the device, which gives up after 2 s at most, and resets the control connection while they are
# made again, for 10 s at most.
reset_while_reconnecting()
{
	first=$(pairs)
	drop_roce && sleep 3 && [ "$(pairs)" != "$first" ] && reset_control
}

packets() # BAND
{
	sed -n "/parent 1:$1 /,/Sent/s/.*Sent [0-9]* bytes \([0-9]*\) pkt.*/\1/p" marked
}

# Runs a command whose RoCE packets must have a traffic class, except the connection manager's first messages.
marked() # CLASS COMMAND...
{
	class=$1
	shift
	tc qdisc add dev "$interface" root handle 1: prio bands 4 && tc qdisc add dev "$interface" parent 1:3 handle 3: pfifo &&
		tc qdisc add dev "$interface" parent 1:4 handle 4: pfifo &&
		tc filter add dev "$interface" parent 1: prio 1 protocol ip u32 match ip protocol 17 0xff \
			match ip dport 4791 0xffff match ip tos "$class" 0xff flowid 1:3 &&
		tc filter add dev "$interface" parent 1: prio 2 protocol ip u32 match ip protocol 17 0xff \
			match ip dport 4791 0xffff flowid 1:4 || return
	"$@"
	status=$?
	tc -s qdisc show dev "$interface" | tee marked
	tc qdisc del dev "$interface" root || return
	[ "$(packets 3)" -gt 100 ] && [ "$(packets 4)" -lt 20 ] || return
	return $status
}

# Takes each rail down COUNT times, one rail after the other.
rail_flaps() # COUNT
{
	for cable in $(interfaces); do
		flap_times "$1" "$cable" || return
	done
}

# Drops RoCE packets from now on; the control connection still works.
roce_stops()
{
	tc qdisc add dev "$interface" root handle 1: prio && tc qdisc add dev "$interface" parent 1:3 netem loss 100% &&
		tc filter add dev "$interface" parent 1: protocol ip u32 match ip protocol 17 0xff \
			match ip dport 4791 0xffff flowid 1:3
}

# Runs a command, then ends the loss that roce_stops has begun.
roce_starts() # COMMAND...
{
	"$@"
	status=$?
	tc qdisc del dev "$interface" root && return $status
}

# Waits until a cable has carried 300,000 bytes more, so that its rail is up.
await_use() # CABLE
{
	carried "$1"
	goal=$((bytes + 300000))
	until [ $bytes -gt $goal ]; do
		if ! alive $pid; then
			echo "the command ended before it used $1"
			return 1
		fi
		sleep 0.1
		carried "$1"
	done
}

# Deletes a device in use, which the command must release, adds the device again, and waits until it carries data.
away_and_back() # DEVICE SECONDS
{
	read -r cable <"/sys/class/infiniband/$1/parent" && await_use "$cable" && timeout 10 rdma link delete "$1" &&
		sleep "$2" && add_device "$cable" "$1" && await_use "$cable"
}

# Runs a command that deletes a device, and adds the device again.
put_card() # DEVICE INTERFACE COMMAND...
{
	device=$1
	cable=$2
	shift 2
	"$@" && add_device "$cable" "$device"
}

# Replaces all devices.  Their queue pairs for the connection manager can hang after a fault.
renew()
{
	for device in $(ls /sys/class/infiniband); do
		read -r cable <"/sys/class/infiniband/$device/parent" &&
			rdma link delete "$device" && add_device "$cable" "$device" || return
	done
}

# Runs a command with a soft-RoCE device on the interface of soft-iWARP.
beside_roce() # COMMAND...
{
	modprobe rdma_rxe && add_device "$(ls /sys/class/net | grep -v '^lo$')" rxe0 && "$@"
}

# Checks soft-iWARP devices: an explicit `--fabric verbs` fails with their name, and `auto` uses tcp.
iwarp_refused()
{
	must_fail 'siw0: .*RDMA-IWARP' peerlane bench --key /guest/key --fabric verbs $server && over auto &&
		by_fabric tcp bench --op write --size 64K --iterations 20
}

# Runs a command that must choose a fabric.
by_fabric() # NAME COMMAND...
{
	name=$1
	shift
	"$@" && grep -q "\"fabric\": *\"$name\"" result
}

# Checks devices that do not reach each other: an explicit `--fabric verbs` fails, and `auto` uses tcp.
insists_or_goes_on() # COMMAND...
{
	must_fail 'CONNECT' peerlane bench --key /guest/key --fabric verbs --timeout 2 $server || return
	by_fabric tcp "$@" && grep 'did not reach each other' result
}

# Runs a command that must use COUNT rails.
over_rails() # COUNT COMMAND...
{
	rails=$1
	shift
	"$@" && grep -q "\"lanes\": $rails" result
}

# Runs `bench`, whose JSON must have COUNT ports of soft-RoCE, one for each result and rail, that sent packets.
counts_packets() # COUNT COMMAND...
{
	ports=$1
	shift
	"$@" || return
	counted=$(grep -c '"sent_pkts": [1-9]' result)
	echo "$counted ports with sent packets"
	[ "$counted" = "$ports" ] && ! grep '"sent_pkts": 0\|"lifespan"' result
}

# Runs `bench`, whose JSON must have a counter of soft-RoCE for lost packets.
counts_losses() # COMMAND...
{
	"$@" && grep '"rcvd_seq_err": [1-9]\|"completer_retry_err": [1-9]' result
}

# Runs `bench --events`, whose JSON must match each of these patterns.
logs_events() # PATTERN,... COMMAND...
{
	patterns=$1
	shift
	"$@" || return
	IFS=,
	for pattern in $patterns; do
		if ! grep -q "$pattern" result; then
			echo "no event matches $pattern"
			return 1
		fi
	done
}

# Runs a command during which each cable must carry at least 1 MB.
all_carry() # COMMAND...
{
	for card in /sys/class/net/*; do
		[ "$card" = /sys/class/net/lo ] || echo "$card $(cat "$card/statistics/tx_bytes")"
	done >before
	"$@" || return
	while read -r card bytes; do
		if [ $(($(cat "$card/statistics/tx_bytes") - bytes)) -lt 1000000 ]; then
			echo "$card carried less than 1 MB"
			return 1
		fi
	done <before
}

# Deletes the device of a command, which must release it and fail.  The deletion waits for the release.
unplugged() # COMMAND...
{
	launch "$@" && await_traffic && rdma link delete rxe0 || return
	wait $pid
	[ $? != 0 ] && add_device "$interface" rxe0
}

# Runs a command that must print the pattern; returns the command's status.
says() # PATTERN COMMAND...
{
	pattern=$1
	shift
	"$@" >said 2>&1
	status=$?
	cat said
	if ! grep -q "$pattern" said; then
		echo "the output does not contain $pattern"
		return 1
	fi
	return $status
}

# Runs a command that must fail and print the pattern.
must_fail() # PATTERN COMMAND...
{
	says "$@"
	[ $? != 0 ] && grep -q "$1" said
}

# Runs a file server that is killed during a transfer, then starts it again.  netem limits the rate, so that the
# transfer lasts long enough.
killed_file_server()
{
	wanted=$port
	enough=3000000
	mkdir public && numbers >public/numbers || return
	with_netem 'rate 30mbit' killed peerlane serve $options :$port public &&
		serving $port peerlane serve $options --once :$port public
}

get_file_again()
{
	must_fail 'kept: ' peerlane get $options $server numbers -o copy || return
	while ! get_file; do
		sleep 0.5
	done
}

# -- Cases that must fail

kernel_complains()
{
	echo '<3>BUG: this is a test' >/dev/kmsg
}

panic()
{
	sleep 1
	echo c >/proc/sysrq-trigger
}

# Occupies the only processor with a real-time process.
hang()
{
	echo -1 >/proc/sys/kernel/sched_rt_runtime_us
	exec chrt -f 99 sh -c 'while :; do :; done'
}

# -- peerlane check

# Prints the status of a row from the file `checked`.
row() # ID
{
	sed -n "/\"id\": *\"$1\"/,/\"status\"/s/.*\"status\": *\"\([A-Za-z]*\)\".*/\1/p" checked
}

# Runs `peerlane check`, which must exit with STATUS; saves its output as `checked`.
check() # STATUS
{
	peerlane check --json >checked
	status=$?
	[ $status = "$1" ] && return
	echo "the exit status is $status, not $1"
	cat checked
	return 1
}

check_device()
{
	check 3 || return
	[ "$(row card-driver)" = WARN ] && [ "$(row access-nodes)" = OK ] && [ "$(row port-state)" = OK ] &&
		[ "$(row port-gid)" = OK ] && [ "$(row port-address)" = OK ] && [ "$(row access-memlock)" = OK ] &&
		grep -q '"device": *"rxe0"' checked && grep -q 'made of software' checked && return
	cat checked
	return 1
}

# Checks that the port's state follows its network interface.
check_link()
{
	ip link set "$interface" down && sleep 0.5 && check 1 && [ "$(row port-state)" = FAIL ] &&
		ip link set "$interface" up && sleep 0.5 || return
	until gid_index >/dev/null; do
		sleep 0.1
	done
	check 3 && [ "$(row port-state)" = OK ]
}

# Checks a missing device node and a module that is not loaded, and their remedies.
check_modules()
{
	modprobe -r rdma_ucm && [ ! -e /sys/module/rdma_ucm ] || return
	mv /dev/infiniband/uverbs0 /dev/uverbs0 && check 1 && [ "$(row access-nodes)" = FAIL ] &&
		peerlane check --fix | grep -x 'modprobe rdma_ucm' && [ ! -e /sys/module/rdma_ucm ] &&
		peerlane check --fix --yes && [ -e /sys/module/rdma_ucm ] &&
		mv /dev/uverbs0 /dev/infiniband/uverbs0 && check 3
}

# Checks a low limit of locked memory, for root without CAP_IPC_LOCK.
check_limit()
{
	file=/etc/security/limits.d/90-peerlane.conf
	limited='ulimit -l 64; exec setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock peerlane'
	sh -c "$limited check --json" >checked
	[ "$(row access-memlock)" = FAIL ] || {
		cat checked
		return 1
	}
	sh -c "$limited check --fix" && [ ! -e $file ] && sh -c "$limited check --fix --yes" && cat $file &&
		grep -qx '[*] hard memlock unlimited' $file && rm $file
}

check_rescan()
{
	for device in /sys/bus/pci/devices/*; do
		[ -e "$device/driver" ] || unbound=${device##*/}
	done
	[ -n "$unbound" ] || exit 77
	before=$(ls -di "/sys/bus/pci/devices/$unbound/")
	check_action rescan "$unbound" && [ -e "/sys/bus/pci/devices/$unbound/vendor" ] || return
	# The rescan must have created the device again, with a new inode.
	[ "$before" != "$(ls -di "/sys/bus/pci/devices/$unbound/")" ] || return
	! check_action rescan 0000:ff:1f.7
}

check_dump()
{
	peerlane dump -o live.tar && check 3 || return
	peerlane check --json --sysroot live.tar >dumped
	[ $? = 3 ] || return 1
	# A dump has no name of its host, and two checks have their own times.
	sed -i -E '/^ *"(host|boot_id|time|duration_seconds|uptime_seconds|root)":/d' checked dumped
	cmp checked dumped
}
