# SPDX-License-Identifier: BSD-2-Clause
# What the cases in ../cases.py are made of, read by the shell of each job.  A job runs in an empty folder of its own;
# it passes with status 0, is skipped with 77, and else fails; what it prints is shown when it fails.  To start a program
# takes a twentieth of a second, so what is done often does without.

# Where the servers are, on the same machine or on the other.
server=10.0.0.1
port=19875
if [ -e /sys/class/infiniband/rxe0/parent ]; then
	read -r interface </sys/class/infiniband/rxe0/parent
fi

# Says that the other end may begin.
ready()
{
	echo "$0 ready" >&3
}

alive() # PID; a process that ended has no program any more
{
	[ -e "/proc/$1/exe" ]
}

listening() # PORT, of TCP or of the RDMA connection manager
{
	suffix=$(printf :%04X "$1")
	for table in /proc/net/tcp /proc/net/tcp6; do
		while read -r _ address _ state _; do
			case $address-$state in
			*"$suffix-0A") return ;;
			esac
		done <$table
	done
	# The connection manager says so a moment before it does.
	rdma resource show cm_id 2>/dev/null | grep -q "LISTEN.*:$1 " && sleep 0.2
}

# Starts a command as $pid; says so once it listens, if there is a port that is $wanted.
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

attended() # COMMAND...
{
	launch "$@"
	wait $pid
}

serving() # PORT COMMAND..., which ends by itself after its client
{
	wanted=$1
	shift
	attended "$@"
}

# Setting up.

soft_roce() # INTERFACE ADDRESS [DEVICE]: a device on it, rxe0 if it has no name
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

on_cables() # ADDRESS..., one each: rxe0 and so on
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

# The entry with the IPv4 address: the way of RoCE that goes through routers.
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

# Programs of others.

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

# When all is done rping closes what its own thread listens on; if that looks once more meanwhile, it ends the program
# with an error.  So what it says shows whether it did its work.
pings() # SECONDS ARGUMENTS...
{
	seconds=$1
	shift
	timeout "$seconds" rping "$@" >pings 2>&1
	status=$?
	cat pings
	[ $status = 0 ] || grep -q '^rdma_get_cm_event: Bad file descriptor' pings || return $status
}

# Ours.

over() # FABRIC: what the commands after this use
{
	fabric=$1
	options="--key /guest/key --fabric $fabric"
	# One answer is enough for a machine.
	[ ! -e "/run/over-$1" ] || return 0
	if peerlane bench $options 127.0.0.1:1 2>&1 | grep 'FABRIC-UNKNOWN'; then
		exit 77
	fi
	: >"/run/over-$1"
}

scenarios() # FABRIC ARGUMENT...; shows what failed
{
	fabric=$1
	shift
	hidden='^\[ RUN \|^\[       OK '
	if [ -n "$scenarios_here" ]; then
		# The last one that ran may be the one that ended the program.
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

fewer_sends() # LIMIT COMMAND...
{
	limit=$1
	shift
	counter=/sys/class/infiniband/rxe0/ports/1/hw_counters/rdma_sends
	read -r before <$counter && "$@" && read -r after <$counter || return
	echo "$((after - before)) messages"
	[ $((after - before)) -lt "$limit" ]
}

# A command that must have soft-RoCE bind windows: without them it would pass as well, and show nothing.
by_windows() # COMMAND...
{
	tracing=/sys/kernel/tracing
	[ -e $tracing/trace ] || mount -t tracefs tracing $tracing || return
	echo 'p:bind rxe_bind_mw' >$tracing/kprobe_events && echo >$tracing/trace &&
		echo 1 >$tracing/events/kprobes/bind/enable || return
	"$@"
	status=$?
	echo 0 >$tracing/events/kprobes/bind/enable
	if ! grep -q ' bind: ' $tracing/trace; then
		echo 'no window was bound'
		return 1
	fi
	return $status
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

posts() # so often soft-RoCE was told of something to send, since the probe is there
{
	sed -n 's/^ *posts  *\([0-9]*\).*/\1/p' /sys/kernel/tracing/kprobe_profile
}

# 320 operations, 16 under way, in lists of so many: one call of the driver a list, and few for all else.
post_lists() # LENGTH OPERATION
{
	[ -e /sys/kernel/tracing/kprobe_events ] || mount -t tracefs tracefs /sys/kernel/tracing || return 77
	echo p:posts rxe_post_send >/sys/kernel/tracing/kprobe_events || return 77
	echo 1 >/sys/kernel/tracing/events/kprobes/posts/enable
	bench --op "$2" --size 8 --iterations 320 --warmup 0 --depth 16 --post-list "$1"
	status=$?
	calls=$(posts)
	echo 0 >/sys/kernel/tracing/events/kprobes/posts/enable
	echo >/sys/kernel/tracing/kprobe_events
	echo "$calls calls for 320 operations"
	[ $status = 0 ] || return
	if [ "$1" = 1 ]; then
		[ "$calls" -ge 320 ]
	else
		[ "$calls" -ge $((320 / $1)) ] && [ "$calls" -le $((320 / $1 + 60)) ]
	fi
}

bench_server() # [WAY...]: during or killed, or options
{
	wanted=$port
	case ${1:---} in
	--*) attended peerlane bench $options --server --once "$@" :$port ;;
	*) "$@" peerlane bench $options --server --once :$port ;;
	esac
}

workflow() # DEVICE ARMS ARGUMENT...: all of so many arms have received by the card alone, and what they computed is right
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

# Faults.  Those that pass clean up; a case that fails gets its successor new machines.

carried() # CABLE; what went over it, in both directions, as $bytes
{
	read -r sent <"/sys/class/net/$1/statistics/tx_bytes" && read -r bytes <"/sys/class/net/$1/statistics/rx_bytes" &&
		bytes=$((bytes + sent))
}

# Bytes over all cables, as $sum: which of two rails carries messages is not known.
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

# Until there is traffic ($enough bytes of it): what is to be disturbed is then under way.
await_traffic()
{
	moved
	goal=$((sum + ${enough:-100000}))
	until [ $sum -gt $goal ]; do
		if ! alive $pid; then
			echo "it ended before there was traffic"
			return 1
		fi
		sleep 0.05
		moved
	done
}

# Does something to a command that then must go on, and pass.
during() # FAULT COMMAND...
{
	fault=$1
	shift
	launch "$@" && await_traffic && $fault || return
	if ! alive $pid; then
		wait $pid
		echo "status $?: it did not last as long as the fault"
		return 1
	fi
	wait $pid
}

# Kills a command in the middle.
killed() # COMMAND...
{
	launch "$@" && await_traffic && kill -KILL $pid || return
	wait $pid
	[ $? = 137 ]
}

# Its device soon has no room for what comes, and says so whenever it is asked; the sender asks again after a moment.
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

# Whether or not the link was in use again.
flaps() # SECONDS
{
	end=$(($(date +%s) + $1))
	until [ "$(date +%s)" -ge $end ]; do
		link_down 0.1 && sleep 0.4 || return
	done
}

# Until each device has a connected queue pair again, and $enough bytes went over them.
await_recovery()
{
	set -- /sys/class/infiniband/*
	limit=$(($(date +%s) + 20))
	until pairs=$(rdma resource show qp | grep -c 'type RC state RTS') && [ "$pairs" -ge $# ]; do
		if ! alive $pid; then
			echo 'it ended instead of connecting again'
			return 1
		fi
		if [ "$(date +%s)" -gt $limit ]; then
			echo "of $# queue pairs there are $pairs"
			return 1
		fi
		sleep 0.05
	done
	await_traffic
}

# The links in turn, so many times altogether, each once the last one is in use again.
flap_times() # COUNT INTERFACE...
{
	count=$1
	shift
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

# Does something to a command that goes on until it is told to end, and then must pass.
until_after() # FAULT COMMAND...
{
	fault=$1
	shift
	launch "$@" && await_traffic && $fault || return
	kill -TERM $pid
	wait $pid
}

# The accounts of what arrives, at a server; and with faults at its end until it has had enough.
keep_ledger() # [narrow]
{
	serving $port ledger "$fabric" "${1:-serve}" $server:$port
}

keep_ledger_until_after() # FAULT
{
	wanted=$port
	until_after "$1" ledger "$fabric" serve $server:$port
}

lose_card() # DEVICE, and go on without
{
	rdma link delete "$1" && await_traffic
}

# What goes out is treated as tc-netem(8) says.
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

# Whose packets of RoCE are dropped, and no others: devices that both ends have, and that do not reach each other.
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

packets() # BAND
{
	sed -n "/parent 1:$1 /,/Sent/s/.*Sent [0-9]* bytes \([0-9]*\) pkt.*/\1/p" marked
}

# Of what leaves here for RDMA, all but the connection manager's first messages has this traffic class.
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

# Of several rails, first the one fails again and again and then the next.
rail_flaps() # COUNT, each
{
	for cable in $(interfaces); do
		flap_times "$1" "$cable" || return
	done
}

# From now on packets of RoCE are lost, which the control connection does not notice.
roce_stops()
{
	tc qdisc add dev "$interface" root handle 1: prio && tc qdisc add dev "$interface" parent 1:3 netem loss 100% &&
		tc filter add dev "$interface" parent 1: protocol ip u32 match ip protocol 17 0xff \
			match ip dport 4791 0xffff flowid 1:3
}

# Ends it, whatever the command did.
roce_starts() # COMMAND...
{
	"$@"
	status=$?
	tc qdisc del dev "$interface" root && return $status
}

# A card is taken away from a command, which must let go of it, is put back, and then carries something again.
away_and_back() # DEVICE SECONDS
{
	read -r cable <"/sys/class/infiniband/$1/parent" && timeout 10 rdma link delete "$1" && sleep "$2" &&
		add_device "$cable" "$1" || return
	carried "$cable"
	goal=$((bytes + 300000))
	until [ $bytes -gt $goal ]; do
		if ! alive $pid; then
			echo 'the card was not used again'
			return 1
		fi
		sleep 0.1
		carried "$cable"
	done
}

# The card that the command loses, and after which it must pass, is put back.
put_card() # DEVICE INTERFACE COMMAND...
{
	device=$1
	cable=$2
	shift 2
	"$@" && add_device "$cable" "$device"
}

# New devices have new queue pairs for the connection manager, which get stuck.
renew()
{
	for device in $(ls /sys/class/infiniband); do
		read -r cable <"/sys/class/infiniband/$device/parent" &&
			rdma link delete "$device" && add_device "$cable" "$device" || return
	done
}

by_fabric() # NAME COMMAND...: and that one was chosen
{
	name=$1
	shift
	"$@" && grep -q "\"fabric\": *\"$name\"" result
}

# Where devices do not reach each other: who names verbs does not get anything else.
insists_or_goes_on() # COMMAND...
{
	must_fail 'CONNECT' peerlane bench --key /guest/key --fabric verbs --timeout 2 $server || return
	by_fabric tcp "$@" && grep 'did not reach each other' result
}

over_rails() # COUNT COMMAND...: and all of them carried something
{
	rails=$1
	shift
	"$@" && grep -q "\"streams\": $rails" result
}

all_carry() # COMMAND...: each cable has some of it
{
	for card in /sys/class/net/*; do
		[ "$card" = /sys/class/net/lo ] || echo "$card $(cat "$card/statistics/tx_bytes")"
	done >before
	"$@" || return
	while read -r card bytes; do
		if [ $(($(cat "$card/statistics/tx_bytes") - bytes)) -lt 1000000 ]; then
			echo "$card carried next to nothing"
			return 1
		fi
	done <before
}

# Takes the device away from a command, which must let go of it and fail: until then the removal lasts.
unplugged() # COMMAND...
{
	launch "$@" && await_traffic && rdma link delete rxe0 || return
	wait $pid
	[ $? != 0 ] && add_device "$interface" rxe0
}

says() # PATTERN COMMAND...: prints something that has the pattern; the status is the command's
{
	pattern=$1
	shift
	"$@" >said 2>&1
	status=$?
	cat said
	if ! grep -q "$pattern" said; then
		echo "it does not say $pattern"
		return 1
	fi
	return $status
}

must_fail() # PATTERN COMMAND...: and say something that has the pattern
{
	says "$@"
	[ $? != 0 ] && grep -q "$1" said
}

# After a benchmark that may fail, but in time and for a reason.
# A server of a file that is killed in the middle, at a rate that has a middle, and then is there again.
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

# For the cases that must fail.

kernel_complains()
{
	echo '<3>BUG: this is a test' >/dev/kmsg
}

panic()
{
	sleep 1
	echo c >/proc/sysrq-trigger
}

# Nothing but this gets the only processor.
hang()
{
	echo -1 >/proc/sys/kernel/sched_rt_runtime_us
	exec chrt -f 99 sh -c 'while :; do :; done'
}

# The check.

# The status of a row, of the file `checked`.
row() # ID
{
	sed -n "/\"id\": *\"$1\"/,/\"status\"/s/.*\"status\": *\"\([A-Za-z]*\)\".*/\1/p" checked
}

check() # STATUS; keeps the answer in `checked`
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

# The device follows its interface, and recovers.
check_link()
{
	ip link set "$interface" down && sleep 0.5 && check 1 && [ "$(row port-state)" = FAIL ] &&
		ip link set "$interface" up && sleep 0.5 || return
	until gid_index >/dev/null; do
		sleep 0.1
	done
	check 3 && [ "$(row port-state)" = OK ]
}

# Without its node the device cannot be opened; one of the modules that make nodes is not loaded.
check_modules()
{
	modprobe -r rdma_ucm && [ ! -e /sys/module/rdma_ucm ] || return
	mv /dev/infiniband/uverbs0 /dev/uverbs0 && check 1 && [ "$(row access-nodes)" = FAIL ] &&
		peerlane check --fix | grep -x 'modprobe rdma_ucm' && [ ! -e /sys/module/rdma_ucm ] &&
		peerlane check --fix --yes && [ -e /sys/module/rdma_ucm ] &&
		mv /dev/uverbs0 /dev/infiniband/uverbs0 && check 3
}

# Root who may not lock what he likes, with a low limit.
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
	# It is the same device, made anew.
	[ "$before" != "$(ls -di "/sys/bus/pci/devices/$unbound/")" ] || return
	! check_action rescan 0000:ff:1f.7
}

check_dump()
{
	peerlane dump -o live.tar && check 3 || return
	peerlane check --json --sysroot live.tar >dumped
	[ $? = 3 ] && cmp checked dumped
}
