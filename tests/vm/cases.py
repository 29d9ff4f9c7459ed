# SPDX-License-Identifier: BSD-2-Clause
"""The cases: commands, machines and time limits.  Commands are shell code with the functions of guest/cases.sh and the
programs that image.py names.
"""
import dataclasses
import fnmatch
import typing

import peermem


@dataclasses.dataclass
class Case:
    """`client` runs on a suite's last machine; `server`, if given, starts before on the first machine until it is ready.

    Both must pass.  A case with `fails` must fail with a reason that contains this text.  `or_fails` is a pattern of
    reasons that count as passed.  `check` gets the output of `client`, inspects files on the host, and returns an error
    text or ''.
    """
    name: str
    seconds: int
    client: str
    server: str = ''
    fails: str = ''
    or_fails: str = ''
    check: typing.Callable[[list], str] = lambda output: ''


@dataclasses.dataclass
class Suite:
    """Machines, one for each element of `setup`, connected by cables if there are two; each runs its `setup` first.

    `devices` returns further QEMU arguments for machine `number`; `options` are parameters of the kernel.  The cases in
    `sound` pass on all working machines.  If a case fails and then one of these fails too, the case is repeated once on
    new machines.
    """
    name: str
    memory: str
    processors: int
    setup: list
    cases: list
    cables: int = 1
    devices: typing.Callable[[int], list] = lambda number: []
    options: str = ''
    sound: list = dataclasses.field(default_factory=list)
    asked: bool = False     # runs only if named on the command line


FABRICS = ['tcp', 'verbs']


def over(fabric, *cases):
    """Returns the cases with a fabric for their commands."""
    return [dataclasses.replace(case, name=f'{fabric}: {case.name}', client=f'over {fabric}; {case.client}',
                                server=case.server and f'over {fabric}; {case.server}') for case in cases]


def renewed(*cases):
    """Returns the cases with new devices at their start, as cases before may have damaged the old ones."""
    return [dataclasses.replace(case, client=f'renew && {case.client}', server=f'renew && {case.server}')
            for case in cases]


def over_all(*cases):
    return [case for fabric in FABRICS for case in over(fabric, *cases)]


def split(cases, *patterns):
    """Splits cases into those whose names match a pattern, and the others, which run on demand only."""
    chosen = [case for case in cases if not case.name.endswith(', more') and
              any(fnmatch.fnmatchcase(case.name, pattern) for pattern in patterns)]
    return chosen, [case for case in cases if case not in chosen]


WRITE_BW = 'ib_write_bw -d rxe0 -F -s 65536 -n'
# Cases with two ends, on one machine or two.  Programs of other projects come first, to check the machines.
FOREIGN = [
    Case('ibv_rc_pingpong', 30, server='serving 18515 pingpong 200', client='pingpong 200 $server'),
    Case('rping', 30, server='serving 7174 pings 25 -s -v',
         client='says rdma-ping-9 pings 25 -c -a $server -C 10 -v'),
    Case('ib_write_bw', 30, server=f'serving 18515 {WRITE_BW} 100', client=f'{WRITE_BW} 100 $server'),
]
# soft-RoCE's queue pair for the connection manager hangs if the link goes down at the wrong time.
SOUND = [Case(f'rping to {address}', 15, server=f'serving 7174 pings 12 -s -a {address}',
              client=f'says rdma-ping-1 pings 8 -c -a {address} -C 2 -v') for address in ('10.0.0.1', '10.0.1.1')]
# `peerlane check` on a live device, and its automatic remedies.
CHECK = [
    Case('check: a live device', 30, 'check_device'),
    Case('check: a link that is down', 30, 'check_link'),
    Case('check: modules are loaded', 30, 'check_modules'),
    Case('check: the limit of locked memory', 30, 'check_limit'),
    Case('check: a device is rescanned', 30, 'check_rescan'),
    Case('check: a dump of the machine', 40, 'check_dump'),
]
COMMAND = [
    Case('serve and get', 60, server='serve_file', client='get_file'),
    Case('serve and put', 60, server='receive_file', client='put_file'),
    Case('bench write', 60, server='bench_server', client='bench --op write --size 8,4K,256K --iterations 50'),
    Case('bench read', 60, server='bench_server', client='bench --op read --size 64K --iterations 100'),
    Case('bench send', 60, server='bench_server', client='bench --op send --latency --size 64 --iterations 100'),
    Case('bench fetch-add', 60, server='bench_server', client='bench --op fetch-add --size 8 --iterations 100'),
]
# Each list must be one call of the driver.
POST_LISTS = over('verbs', *(Case(f'post lists of {length}: {operation}', 60, server='bench_server',
                                  client=f'post_lists {length} {operation}')
                             for length, operation in ((1, 'write'), (16, 'write'), (16, 'read'), (16, 'send'),
                                                       (16, 'fetch-add'))))
# Encryption over tcp only: RDMA cards do not encrypt.
ENCRYPTED = over('tcp', Case('bench encrypted', 60, server='bench_server',
                             client='bench --op write --size 64K --iterations 100 --encrypt'))
# Traffic class of RoCE packets; the accepting end takes over the connecting end's class.
CLASS = over('verbs', Case('traffic class', 60, server='marked 104 bench_server',
                           client='marked 104 bench --op write --size 64K --iterations 100 --traffic-class 104'))
# 40 retries after "receiver not ready".  The connection manager's default pause would take 26 s.  Smaller messages
# would all find room.
NO_ROOM = over('verbs', Case('a receiver without room', 20, server='bench_server during stopped',
                             client='bench --op send --size 4K --duration 3'))

# Small messages that wait are packed into one SEND.
PACKED = over('verbs', Case('small messages in few SENDs', 60, server='bench_server',
                            client='fewer_sends 1000 counts_packets 2 bench --op send --size 8,100 --depth 128 '
                                   '--iterations 2000'))

# Frames through a simulated GPU, with all methods.
WORKFLOW = over('verbs', Case('bench workflow', 60, server='workflow_server', client='workflow simulated 6 --size 64K --frames 10'))
# A program without the library accesses the memory of a program with it.
RAW = over('verbs', Case('raw verbs', 60, server='serving $port raw_server $server:$port',
                         client='raw_verbs $server $port'))
# Two processes whose bytes go through soft-RoCE as a device of NCCL.
NCCL = [Case('verbs: the NCCL plugin', 240,
             "nccl_cases test_nccl_peers '@(sizes|receiver_killed|receiver_stopped|abort)_verbs'"),
        Case('verbs: the NCCL plugin, many connections', 240, "nccl_cases test_nccl_peers 'many_comms_verbs'"),
        Case('verbs: the NCCL plugin, faults', 240, "nccl_cases test_nccl_faults '*_verbs'"),
        Case('local: the NCCL plugin with ptrace_scope', 120, 'nccl_ptrace_scopes')]
# Soft-iWARP alone, and beside soft-RoCE.
IWARP = [
    Case('rping', 30, server='serving 7174 pings 25 -s -v', client='says rdma-ping-9 pings 25 -c -a $server -C 10 -v'),
    *over('auto', Case('refused by name', 30, server='bench_server', client='iwarp_refused'),
          Case('beside soft-RoCE', 30, server='beside_roce bench_server',
               client='beside_roce by_fabric verbs bench --op write --size 64K --iterations 20')),
]
FIRST_HOUR = [Case('first hour', 300, 'first_hour')]
SCENARIOS = [
    Case('tcp: scenarios transfer', 100, "scenarios tcp --setting thread '*-sizes'"),
    Case('tcp: scenarios atomic', 100, "scenarios tcp --setting manual 'atomic-*'"),
    Case('tcp: scenarios revoke', 100, "scenarios tcp --setting manual 'revoke-*'"),
    # Hundreds of messages would mean a broken connection for each refused chunk.
    Case('verbs: what is revoked is not asked for again', 60,
         'fewer_sends 100 scenarios verbs --one-sided --setting thread revoke-while-reading'),
    # Between two processes: a reader without the lap rule gets torn frames, and a subscriber none.
    Case('verbs: hunt for torn frames', 300, "stream_hunt 'hunt*'"),
    Case('verbs: killed publishers of frames', 300, "stream_hunt 'killed publisher*'"),
    # A selection of scenarios: those that transfer most would show nothing new with windows.
    *over('verbs', *(Case(f'scenarios by windows, {pattern}', 100,
                          f"by_windows scenarios verbs --one-sided --narrow --setting thread '{pattern}'")
                     for pattern in ('revoke-*', 'deadline-[!o]*', 'expiry'))),
    # The stand-in card repeats all scenarios in other stages, with each setting.
    *over('verbs', *(Case(f'scenarios {name}', 400, f'scenarios verbs --one-sided --setting {setting}')
                     for name, setting in (('thread', 'thread --light'), ('thread, more', 'thread'),
                                           ('manual, more', 'manual')))),
]

# Qualities of a cable.  If its own link is down, soft-RoCE fails posted operations at once.  The other machine retries
# for some time first; for ever if its queue pair has 7 retries.  soft-RoCE fails if packets are reordered.
QUALITIES = [('loss', 'loss 1%'), ('delay', 'delay 2ms')]
REORDERING = 'with_netem "delay 1ms reorder 25%"'
WHOLE = 'bench --op write --depth 1 --warmup 0 --iterations 1 --timeout 90'
WRITE = 'bench --op write --size 16K --duration'
# Runs until the fault is over, and detects lost and repeated data.
LEDGER = 'keep_ledger'
WRITES, SENDS = (f'ledger $fabric {work} $server:$port' for work in ('writes', 'sends'))
FOREIGN_FAULTS = [
    *(Case(f'{name}: ib_write_bw', 60, server=f'serving 18515 {WRITE_BW} 100',
           client=f'with_netem "{setting}" {WRITE_BW} 100 $server') for name, setting in QUALITIES),
    Case('killed server: rping', 60, server='wanted=7174 killed rping -s -C 100000',
         client='pings_until_lost 50 -c -a $server -C 100000'),
]
FAULTS = over_all(
    *(Case(f'link down {time} s', 60, server=LEDGER, client=f'until_after "link_down {time}" {WRITES}')
      for time in (0.3, 4)),
    *(Case(name, 60, server='bench_server', client=f'with_netem "{setting}" {WRITE} 2') for name, setting in QUALITIES),
    Case('killed server', 60, server='bench_server killed', client=f'must_fail . {WRITE} 50'),
    Case('killed client', 60, server='must_fail PEER-LOST bench_server',
         client=f'killed peerlane {WRITE} 50 $options $server'),
    Case('killed server, get again', 60, server='killed_file_server', client='get_file_again'),
) + over(
    'tcp',
    Case('reordering', 60, server='bench_server', client=f'{REORDERING} {WRITE} 2'),
) + over(
    'verbs',
    *renewed(
        *(Case(f'far link down {time} s', 60, server=f'keep_ledger_until_after "link_down {time}"', client=WRITES)
          for time in (0.3, 4))),
    *(Case(f'{size} through {name}', 100, server='bench_server',
           client=f'with_netem "{setting}" counts_losses {WHOLE} --size {size}')
      for name, setting, size in (('loss', 'loss 1%', '16M'), ('corruption', 'corrupt 0.1%', '16M'),
                                  ('reordering', 'delay 1ms reorder 25%', '256K'))),
) + over(
    'auto',
    Case('packets of RoCE are dropped', 60, server='bench_server', client=f'without_roce insists_or_goes_on {WRITE} 1'),
    Case('packets of RoCE arrive', 60, server='bench_server', client=f'by_fabric verbs {WRITE} 1'),
) + over(
    'verbs',
    *renewed(
        Case('flaps', 100, server=LEDGER, client=f'until_after "flap_times 6 $interface" {WRITES}'),
        Case('RoCE stops', 60, server='must_fail PEER-LOST bench_server',
             client=f'roce_starts must_fail "port 1 of rxe0 gave up: .* (vendor error 0x" during roce_stops {WRITE} 50'),
        # After 4 s the client's connection is lost (PEER-LOST), or the client closes it (PEER-CLOSED).
        Case('device deleted', 60, server='must_fail PEER-[LC] bench_server', client=f'unplugged {WRITE} 50 --timeout 4')),
)

# Faults of the control channel only, while rails are connected and connected again.  Each case takes half a minute.
CONTROL_QUALITIES = [('loss', 'loss 20%'), ('delay 200 ms, more', 'delay 200ms'), ('delay 1.2 s', 'delay 1200ms'),
                     ('duplicates, more', 'duplicate 50%'), ('reordering', 'delay 20ms reorder 50%')]
CONTROL = over(
    'verbs',
    *(Case(f'connecting, control {name}', 90, server='bench_server',
           client=f'with_control "{setting}" by_fabric verbs {WRITE} 1 --timeout 30') for name, setting in CONTROL_QUALITIES),
    *(Case(f'connecting again, control {name}', 90, server='bench_server',
           client=f'with_control "{setting}" during "roce_pause 3" {WRITE} 14 --timeout 30')
      for name, setting in CONTROL_QUALITIES if setting != 'duplicate 50%'),
    Case('connecting, control reset', 60, server='bench_server', client=f'reset_while_connecting {WRITE} 1 --ack-timeout 18'),
    Case('connecting again, control reset, more', 60, server='must_fail PEER-LOST bench_server',
         client=f'with_control "delay 20ms" must_fail PEER-LOST during reset_while_reconnecting {WRITE} 50'),
)

# Two cards in each machine; one of them may fail.
RAILS = over(
    'verbs',
    # Depth 1: the library splits a single operation over both rails.  With several, each rail may get whole operations.
    Case('two rails', 60, server='bench_server',
         client='over_rails 2 counts_packets 2 bench --op write --size 1M --depth 1 --iterations 30'),
    Case('one rail', 60, server='bench_server',
         client='over_rails 1 bench --rails 1 --op write --size 1M --iterations 20'),
    Case('two queue pairs of one card', 60, server='bench_server --rails 2 --device rxe1',
         client='over_rails 2 bench --rails 2 --device rxe1 --op read --size 1M --depth 1 --iterations 30'),
    Case('windows over two rails', 60, server='by_windows bench_server',
         client='all_carry bench --op write --size 1M --iterations 40'),
    Case('serve and get', 60, server='serve_file', client='get_file'),
    *(Case(name, 400, f"server=10.0.0.2; scenarios verbs --one-sided --setting thread {pattern}")
      for name, pattern in (('scenarios', "--light '[afvw]*'"), ('scenarios, more', "'[afvwmtr]*'"))),
    *renewed(
        *(Case(f'{name} while rails flap', 100, server=LEDGER, client=f'until_after "rail_flaps 2" {command}')
          for name, command in (('writes', WRITES), ('sends', SENDS))),
        Case('windows while rails flap', 100, server='by_windows keep_ledger narrow',
             client=f'until_after "rail_flaps 1" {WRITES}'),
        Case('rails flap in turn', 100, server=LEDGER, client=f'until_after "flap_times 4 $(interfaces)" {WRITES}'),
        Case('far rails flap', 100, server='keep_ledger_until_after "rail_flaps 2"', client=WRITES),
        Case('a card goes and comes', 60, server=LEDGER, client=f'until_after "away_and_back rxe0 1" {WRITES}'),
        Case('a far card goes and comes', 60, server='keep_ledger_until_after "away_and_back rxe1 1"', client=WRITES),
        Case('events of rails that flap', 100, server='bench_server',
             client='logs_events \'"rail-opened","rail-lost","rail-reopened",: the port is down\' '
                    f'during "rail_flaps 1" {WRITE} 20 --events'),
        Case('events of a card that goes and comes', 60, server='bench_server',
             client='logs_events \'"rail-lost","rail-reopened",: the device was removed\' '
                    f'during "away_and_back rxe0 1" {WRITE} 14 --events'),
        Case('events of a far card that goes and comes', 60,
             server='bench_server during "away_and_back rxe1 1"',
             client=f'logs_events \'"rail-lost","rail-reopened"\' {WRITE} 14 --events'),
        Case('a card less', 60, server=LEDGER,
             client=f'put_card rxe1 $(cat /sys/class/infiniband/rxe1/parent) until_after "lose_card rxe1" {WRITES}')),
)

# Long cases: many faults, and large transfers over bad cables.
FLAPS = over('verbs', *renewed(*(
    Case(f'{name}, 50 flaps', 280, server=LEDGER, client=f'until_after "flap_times 50 $(interfaces)" {command}')
    for name, command in (('writes', WRITES), ('sends', SENDS)))))
ENDURANCE = [*FLAPS, *over(
    'verbs',
    *renewed(Case('flaps in haste', 100, server='bench_server', client=f'during "flaps 5" {WRITE} 10')),
    *(Case(f'64M through {name}', 100, server='bench_server', client=f'with_netem "{setting}" {WHOLE} --size 64M')
      for name, setting in (('loss', 'loss 1%'), ('corruption', 'corrupt 0.1%'))),
    # With reordering, packets are sent one at a time.
    Case('64M through reordering', 620, server='bench_server', client=f'{REORDERING} {WHOLE} --size 64M --timeout 600'),
)]
ENDURANCE_RAILS = [*FLAPS, *over(
    'verbs',
    *renewed(
        # Large messages: small ones would stay on the other card, to keep their order.
        Case('sends while a card goes and comes', 60, server='bench_server',
             client='during "away_and_back rxe0 1" bench --op send --size 128K --depth 16 --duration 14'),
        Case("the only rail's card goes and comes", 60, server='bench_server',
             client=f'during "away_and_back rxe0 1" {WRITE} 14 --rails 1'),
        Case('windows, 10 flaps in turn', 100, server='by_windows keep_ledger narrow',
             client=f'until_after "flap_times 10 $(interfaces)" {WRITES}')),
)]

# The kernel module with a GPU in the second machine.  Persistent pins stay when memory is freed, revocable ones end.  An
# old core unmaps during an invalidation, with a lock held.
def module(standins, parameters, command):
    return f'standins {standins} && with_module peerlane_peermem "{parameters}" {command}'


REVOCABLE = 'persistent_api_support=0'
OLD = 'peerdirect_support=1 persistent_api_support=0'
PEERMEM = [
    Case('interfaces that are missing', 20, 'missing_interfaces'),
    Case('parameters', 20, 'parameters'),
    Case('peerlane check', 40, 'known_to_check'),
    Case('flavours', 30, 'flavours'),
    Case('persistent', 60, module('open', '', 'peermem_cases'), check=peermem.after_third_party),
    Case('revocable', 60, module('closed', REVOCABLE, 'peermem_cases')),
    Case('old driver', 60, module('old', '', 'peermem_cases whole freed failures')),
    Case('old core', 60, module('open old=1', REVOCABLE, 'peermem_cases')),
    Case('oldest core', 60, module('open old=1', OLD, 'peermem_cases whole freed several races')),
    Case('no leak', 60, module('open', REVOCABLE, 'cycles')),
    Case('reasons', 20, module('open', '', 'logged "cannot pin 8192 bytes at .*address space" peermem_cases strangers')),
    Case('many reasons', 20, module('open', '', 'limited')),
    Case('a pin that stays', 20, module('open', '', 'logged "stay pinned: the driver refuses" peermem_cases stuck')),
    Case('walk', 60, module('open', REVOCABLE, 'peermem_walk')),
    Case('walk, old core', 60, module('open old=1', REVOCABLE, 'peermem_walk')),
    Case('walk, old driver', 60, module('old', REVOCABLE, 'peermem_walk')),
    *(Case(f'broken: {name}', 60, f'broken {name} {parameter}') for name, parameter in (
        ('unchecked', ''), ('untold', ''), ('inverted', 'old=1'), ('forgetful', ''))),
    Case('broken: hurried', 60, 'broken_case hurried drowsy'),
    # Defects with use after free: peermem_walk detects them, unless the kernel fails before.
    *(Case(f'broken: {name}', 60, f'broken {name}', or_fails='BUG: |Oops|general protection')
      for name in ('impatient', 'hasty')),
]
REMOTE = [
    Case('RDMA from another machine', 60, server='serving 7471 peermem_verbs far $server 7471',
         client=module('open', '', 'near keep'), check=peermem.after_verbs),
    Case('RDMA to memory that was freed', 60, server='serving 7471 peermem_verbs far $server 7471',
         client=module('open', REVOCABLE, 'near free'), check=peermem.after_verbs),
    *(Case(f'{name}, {kind}', 30, module('open', parameter, command)) for kind, parameter in (
        ('persistent', ''), ('revocable', REVOCABLE)) for name, command in (
            ('killed', 'unload_in_use'), ('fork', 'peermem_verbs fork'))),
]

# The library with GPU memory, for each transport.
FAR = 'serving 19875 emulated_peer far $server:$port'


def with_gpu(way, command, parameters=''):
    return f'with_gpu {way} "{parameters}" {command}'


GPU = [
    *(Case(f'GPU memory, {way}', 60, server=FAR, client=with_gpu(way, f'emulated_peer near $server:$port {way}'),
           check=peermem.after_library) for way in ('dmabuf', 'address', 'staged')),
    Case('GPU memory freed, dmabuf', 60, server=FAR,
         client=with_gpu('dmabuf', 'emulated_peer freed $server:$port dmabuf kept')),
    Case('GPU memory freed, persistent', 60, server=FAR,
         client=with_gpu('address', 'emulated_peer freed $server:$port address kept')),
    Case('GPU memory freed, revocable', 60, server=FAR,
         client=with_gpu('address', 'emulated_peer freed $server:$port address lost', REVOCABLE)),
    *(Case(f'GPU memory used, {way}', 60, with_gpu(way, f'emulated_gpu {way}', REVOCABLE))
      for way in ('dmabuf', 'address')),
    # Scenarios of every fabric, with all buffers in GPU memory.
    *(Case(f'GPU memory, scenarios, {way}', 150, 'server=10.0.0.2; ' + with_gpu(
        way, f"scenarios verbs --one-sided --setting thread --memory alloc '{pattern}'"))
      for way, pattern in (('dmabuf', '[vaf]*'), ('address', 're[vg]*'))),
    # The card gathers several messages from GPU memory, and again after a fault.
    *over('verbs', Case('GPU messages while the link flaps', 60, server='must_fail INTERRUPTED bench_server', client=with_gpu(
        'dmabuf', 'must_fail INTERRUPTED until_after "flap_times 2 $interface" '
        'peerlane bench $options --memory cuda --op send --size 8 --duration 50 $server'))),
    Case('GPU messages that are cancelled', 60, 'server=10.0.0.2; ' + with_gpu(
        'dmabuf', "scenarios verbs --one-sided --setting manual --memory alloc cancel-some")),
    *(Case(f'routes, {way}', 60, with_gpu(way, f'routes {name}'))
      for way, name in (('dmabuf', 'dma-buf'), ('address', 'peer-memory'), ('staged', 'staged'))),
    *over('verbs', *(Case(f'routes are gone by, {name}', 60, server='bench_server',
                          client=with_gpu(way, f"by_profile '{text}' '{change}'")) for name, way, text, change in (
        ('dmabuf', 'dmabuf', 'by dma-buf, from profile', ''),
        ('address', 'address', 'by peer memory, from profile', ''),
        ('another machine', 'dmabuf', 'it is of another machine', '/"machine"/y/0123456789/1234567890/'),
        ('another firmware', 'dmabuf', 'another firmware', 's/"firmware": *"/&x/')))),
    Case('check: a GPU', 30, 'check_gpu'),
    Case('topo: a GPU', 30, 'topo_gpu'),
    # The card receives frames into GPU memory, the GPU computes, and the result is copied back.
    *over('verbs', *(Case(f'frames through the GPU, {way}', 60, server='workflow_server',
                          client=with_gpu(way, 'workflow cuda 8 --size 64K --frames 10')) for way in ('dmabuf', 'address'))),
]

ONE, ONE_MORE = split(
    [Case('ibv_devinfo', 20, 'devinfo'), *CHECK, *FOREIGN, *over('verbs', *COMMAND), *POST_LISTS, *PACKED, *WORKFLOW, *RAW,
     *NCCL, *SCENARIOS, *FIRST_HOUR],
    'ibv*', 'check: *', '*: serve and *', 'verbs: post lists *', 'verbs: small *', 'verbs: bench workflow', 'verbs: raw verbs', '*NCCL*',
    'tcp: scenarios atomic', 'verbs: scenarios thread', 'verbs: scenarios by*',
    'verbs: what is *')
# Few tcp cases: tests/integration/test_netns.c tests tcp between network namespaces.
TWO, TWO_MORE = split(
    [*FOREIGN, *over_all(*COMMAND), *ENCRYPTED, *CLASS, *NO_ROOM, *RAW, *FOREIGN_FAULTS, *FAULTS, *CONTROL],
    'ibv*', 'rping', 'ib_write_bw', 'verbs: *', 'auto: *', 'killed server: rping', 'tcp: serve and get',
    'tcp: bench encrypted', 'tcp: link down 4 s', 'tcp: reordering', 'tcp: killed server, get again')
RAILS, RAILS_MORE = split(RAILS, '*')
ON_TWO = ['on_cables 10.0.0.1', 'on_cables 10.0.0.2']
WITH_TWO_CARDS = ['on_cables 10.0.0.1 10.0.1.1', 'on_cables 10.0.0.2 10.0.1.2']

SUITES = [
    # The longest suite first: the others run beside it.
    Suite('peermem', '512M', 2, ON_TWO, [
        *REMOTE, *GPU, *PEERMEM,
        # A task may wait for ever for a freed lock, and the machine may hang.  Last, as it may cost the machine.
        Case('broken: unreferenced', 15, 'broken unreferenced',
             or_fails='took more than|the machine is gone|BUG: |Oops|general protection'),
    ], devices=peermem.devices, options='slub_debug=FZP'),
    Suite('one', '1G', 2, ['on_dummy $server'], ONE),
    Suite('two', '512M', 1, ON_TWO, TWO, sound=SOUND[:1]),
    Suite('rails', '512M', 1, WITH_TWO_CARDS, RAILS, cables=2, sound=SOUND),
    Suite('more-one', '1G', 2, ['on_dummy $server'], ONE_MORE, asked=True),
    Suite('more-two', '512M', 1, ON_TWO, TWO_MORE, sound=SOUND[:1], asked=True),
    Suite('more-rails', '512M', 1, WITH_TWO_CARDS, RAILS_MORE, cables=2, sound=SOUND, asked=True),
    Suite('iwarp', '512M', 1, ['soft_iwarp 10.0.0.1', 'soft_iwarp 10.0.0.2'], IWARP, asked=True),
    Suite('endurance', '512M', 1, ON_TWO, ENDURANCE, sound=SOUND[:1], asked=True),
    Suite('endurance-rails', '512M', 1, WITH_TWO_CARDS, ENDURANCE_RAILS, cables=2, sound=SOUND, asked=True),
    # Failures that the runner must detect.
    Suite('control', '512M', 1, ['true'], [
        Case('a case that fails', 10, 'echo text; exit 3', fails='status 3'),
        Case('a server that fails', 10, 'true', server='ready; exit 4', fails='server: status 4'),
        Case('a server that stays', 3, 'true', server='ready; sleep 100', fails='server: took more than 3 s'),
        Case('a case that takes too long', 2, 'sleep 100', fails='took more than 2 s'),
        Case('no scenario', 10, "scenarios tcp 'there-is-none'", fails='status 1'),
        Case('a complaint of the kernel', 10, 'kernel_complains', fails='BUG: this is a test'),
        Case('a panic of the kernel', 10, 'panic', fails='Kernel panic'),
        Case('a machine that hangs', 3, 'hang', fails='it does not answer'),
    ]),
]
