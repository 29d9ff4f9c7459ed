# SPDX-License-Identifier: BSD-2-Clause
"""The cases: what is run in which machines, and for how long.  Their code is shell, with the functions of
guest/cases.sh and the programs that image.py names.
"""
import dataclasses
import fnmatch
import typing

import peermem


@dataclasses.dataclass
class Case:
    """`client` runs on a suite's last machine; before it `server`, if there is one, on the first until it is ready.

    Both must pass.  `fails` is for cases that show that failure is seen: they must fail, for a reason that has
    this text in it.  `or_fails` is a pattern of reasons that are as good as passing.  `check` looks at what the case left
    outside of the machines, and, given what `client` printed, returns what is wrong with it.
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
    """Machines, one for each element of `setup`, joined by cables if there are two; `setup` is run in them first.

    `devices` has further arguments of QEMU for the machine of a number, and `options` are the kernel's.  The cases in
    `sound` pass as long as the machines work at all: when another case failed and one of these does, too, that case gets
    new machines and a second chance.
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
    asked: bool = False     # run only when it is named


FABRICS = ['tcp', 'verbs']


def over(fabric, *cases):
    """Cases of the command, with a fabric."""
    return [dataclasses.replace(case, name=f'{fabric}: {case.name}', client=f'over {fabric}; {case.client}',
                                server=case.server and f'over {fabric}; {case.server}') for case in cases]


def renewed(*cases):
    """Cases that begin with new devices, whatever the cases before did to the old ones."""
    return [dataclasses.replace(case, client=f'renew && {case.client}', server=f'renew && {case.server}')
            for case in cases]


def over_all(*cases):
    return [case for fabric in FABRICS for case in over(fabric, *cases)]


def split(cases, *patterns):
    """Those whose names fit a pattern, and the others, which show little that is new: they are run on demand."""
    chosen = [case for case in cases if not case.name.endswith(', more') and
              any(fnmatch.fnmatchcase(case.name, pattern) for pattern in patterns)]
    return chosen, [case for case in cases if case not in chosen]


WRITE_BW = 'ib_write_bw -d rxe0 -F -s 65536 -n'
# Between two ends, on one machine or on two: first programs of others, to see that the rig is sound.
FOREIGN = [
    Case('ibv_rc_pingpong', 30, server='serving 18515 pingpong 200', client='pingpong 200 $server'),
    Case('rping', 30, server='serving 7174 pings 25 -s -v',
         client='says rdma-ping-9 pings 25 -c -a $server -C 10 -v'),
    Case('ib_write_bw', 30, server=f'serving 18515 {WRITE_BW} 100', client=f'{WRITE_BW} 100 $server'),
]
# With its link down at the wrong moment, soft-RoCE's queue pair for the connection manager's messages gets stuck.
SOUND = [Case(f'rping to {address}', 15, server=f'serving 7174 pings 12 -s -a {address}',
              client=f'says rdma-ping-1 pings 8 -c -a {address} -C 2 -v') for address in ('10.0.0.1', '10.0.1.1')]
# What `peerlane check` finds on a live device, and the remedies that it may apply by itself.
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
# One call of the driver for each list.
POST_LISTS = over('verbs', *(Case(f'post lists of {length}: {operation}', 60, server='bench_server',
                                  client=f'post_lists {length} {operation}')
                             for length, operation in ((1, 'write'), (16, 'write'), (16, 'read'), (16, 'send'),
                                                       (16, 'fetch-add'))))
# The card does not encrypt.
ENCRYPTED = over('tcp', Case('bench encrypted', 60, server='bench_server',
                             client='bench --op write --size 64K --iterations 100 --encrypt'))
# What switches tell it by; the accepting end takes the connecting one's.
CLASS = over('verbs', Case('traffic class', 60, server='marked 104 bench_server',
                           client='marked 104 bench --op write --size 64K --iterations 100 --traffic-class 104'))
# 40 pauses, which with the connection manager's own were 26 s.  Of smaller messages all that may be sent find room.
NO_ROOM = over('verbs', Case('a receiver without room', 20, server='bench_server during stopped',
                             client='bench --op send --size 4K --duration 3'))

# Those that wait go together.
PACKED = over('verbs', Case('small messages in few SENDs', 60, server='bench_server',
                            client='fewer_sends 1000 bench --op send --size 8,100 --depth 128 --iterations 2000'))

# Frames through a device that is simulated, in all ways.
WORKFLOW = over('verbs', Case('bench workflow', 60, server='workflow_server', client='workflow simulated 5 --size 64K --frames 10'))
# A program without the library reaches the memory of one with it.
RAW = over('verbs', Case('raw verbs', 60, server='serving $port raw_server $server:$port',
                         client='raw_verbs $server $port'))
SCENARIOS = [
    Case('tcp: scenarios transfer', 100, "scenarios tcp --setting thread '*-sizes'"),
    Case('tcp: scenarios atomic', 100, "scenarios tcp --setting manual 'atomic-*'"),
    Case('tcp: scenarios revoke', 100, "scenarios tcp --setting manual 'revoke-*'"),
    # Whoever breaks a connection for each part of what is refused sends hundreds of messages.
    Case('verbs: what is revoked is not asked for again', 60,
         'fewer_sends 100 scenarios verbs --one-sided --setting thread revoke-while-reading'),
    # Some of those that move most would show nothing new the second time.
    *over('verbs', *(Case(f'scenarios by windows, {pattern}', 100,
                          f"by_windows scenarios verbs --one-sided --narrow --setting thread '{pattern}'")
                     for pattern in ('revoke-*', 'deadline-[!o]*', 'expiry'))),
    *over('verbs', *(Case(f'scenarios {name}', 400, f"scenarios verbs --one-sided --setting {setting} '{pattern}'")
                     for name, setting, pattern in (('thread', 'thread', '*'), ('manual', 'manual', '[!lmrtw]*'),
                                                    ('manual, more', 'manual', '[lmrtw]*')))),
]

# What a cable can do.  With its own link down, soft-RoCE fails at once what is posted; the other machine first tries
# again for a while, for ever if its queue pair has 7 tries.  Packets in another order it does not survive.
QUALITIES = [('loss', 'loss 1%'), ('delay', 'delay 2ms')]
REORDERING = 'with_netem "delay 1ms reorder 25%"'
WHOLE = 'bench --op write --depth 1 --warmup 0 --iterations 1 --timeout 90'
WRITE = 'bench --op write --size 16K --duration'
# Goes on until it is told that the fault is over, and knows whether anything was lost or came twice.
LEDGER = 'keep_ledger'
WRITES, SENDS = (f'ledger $fabric {work} $server:$port' for work in ('writes', 'sends'))
FOREIGN_FAULTS = [
    *(Case(f'{name}: ib_write_bw', 60, server=f'serving 18515 {WRITE_BW} 100',
           client=f'with_netem "{setting}" {WRITE_BW} 100 $server') for name, setting in QUALITIES),
    Case('killed server: rping', 30, server='wanted=7174 killed rping -s -C 100000',
         client='says "DISCONNECT" pings 25 -c -a $server -C 100000'),
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
    *(Case(f'{size} through {name}', 100, server='bench_server', client=f'with_netem "{setting}" {WHOLE} --size {size}')
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
        # After its 4 s the client's connection is lost, or it says goodbye, whichever comes first.
        Case('device deleted', 60, server='must_fail PEER-[LC] bench_server', client=f'unplugged {WRITE} 50 --timeout 4')),
)

# Two cards in each machine, of which one may fail.
RAILS = over(
    'verbs',
    # One at a time, as each is cut for both rails then: of several each may be done by one, that which has less to do.
    Case('two rails', 60, server='bench_server', client='over_rails 2 bench --op write --size 1M --depth 1 --iterations 30'),
    Case('one rail', 60, server='bench_server',
         client='over_rails 1 bench --rails 1 --op write --size 1M --iterations 20'),
    Case('two queue pairs of one card', 60, server='bench_server --rails 2 --device rxe1',
         client='over_rails 2 bench --rails 2 --device rxe1 --op read --size 1M --depth 1 --iterations 30'),
    Case('windows over two rails', 60, server='by_windows bench_server --narrow-grants',
         client='all_carry bench --op write --size 1M --iterations 40'),
    Case('serve and get', 60, server='serve_file', client='get_file'),
    *(Case(name, 200, f"server=10.0.0.2; scenarios verbs --one-sided --setting thread '{pattern}'")
      for name, pattern in (('scenarios', '[afvw]*'), ('scenarios, more', '[mtr]*'))),
    *renewed(
        *(Case(f'{name} while rails flap', 100, server=LEDGER, client=f'until_after "rail_flaps 2" {command}')
          for name, command in (('writes', WRITES), ('sends', SENDS))),
        Case('windows while rails flap', 100, server='by_windows keep_ledger narrow',
             client=f'until_after "rail_flaps 1" {WRITES}'),
        Case('rails flap in turn', 100, server=LEDGER, client=f'until_after "flap_times 4 $(interfaces)" {WRITES}'),
        Case('far rails flap', 100, server='keep_ledger_until_after "rail_flaps 2"', client=WRITES),
        Case('a card goes and comes', 60, server=LEDGER, client=f'until_after "away_and_back rxe0 1" {WRITES}'),
        Case('a far card goes and comes', 60, server='keep_ledger_until_after "away_and_back rxe1 1"', client=WRITES),
        Case('a card less', 60, server=LEDGER,
             client=f'put_card rxe1 $(cat /sys/class/infiniband/rxe1/parent) until_after "lose_card rxe1" {WRITES}')),
)

# What takes long: many faults, and much through bad cables.
FLAPS = over('verbs', *renewed(*(
    Case(f'{name}, 50 flaps', 280, server=LEDGER, client=f'until_after "flap_times 50 $(interfaces)" {command}')
    for name, command in (('writes', WRITES), ('sends', SENDS)))))
ENDURANCE = [*FLAPS, *over(
    'verbs',
    *renewed(Case('flaps in haste', 100, server='bench_server', client=f'during "flaps 5" {WRITE} 10')),
    *(Case(f'64M through {name}', 100, server='bench_server', client=f'with_netem "{setting}" {WHOLE} --size 64M')
      for name, setting in (('loss', 'loss 1%'), ('corruption', 'corrupt 0.1%'))),
    # There packets go one at a time.
    Case('64M through reordering', 620, server='bench_server', client=f'{REORDERING} {WHOLE} --size 64M --timeout 600'),
)]
ENDURANCE_RAILS = [*FLAPS, *over(
    'verbs',
    *renewed(
        # Large ones: small ones would stay with the other card, in their order.
        Case('sends while a card goes and comes', 60, server='bench_server',
             client='during "away_and_back rxe0 1" bench --op send --size 128K --depth 16 --duration 14'),
        Case("the only rail's card goes and comes", 60, server='bench_server',
             client=f'during "away_and_back rxe0 1" {WRITE} 14 --rails 1'),
        Case('windows, 10 flaps in turn', 100, server='by_windows keep_ledger narrow',
             client=f'until_after "flap_times 10 $(interfaces)" {WRITES}')),
)]

# The kernel module with a GPU in the second machine.  Persistent pins stay when memory is freed, revocable ones do not;
# an old core unmaps while it invalidates, and has a lock meanwhile.
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
    # These use memory that was freed: the walk finds that, if the kernel does not stumble over it before.
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

# The library, with the GPU's memory reached in each way.
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
    # What every fabric must do, with all buffers in the GPU.
    *(Case(f'GPU memory, scenarios, {way}', 150, 'server=10.0.0.2; ' + with_gpu(
        way, f"scenarios verbs --one-sided --setting thread --memory alloc '{pattern}'"))
      for way, pattern in (('dmabuf', '[vaf]*'), ('address', 're[vg]*'))),
    # The card takes the bytes of several messages at a time from the GPU's memory, and once more after a fault.
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
    # The founding experiment: received by the card in the GPU's memory, computed there, copied back.
    *over('verbs', *(Case(f'frames through the GPU, {way}', 60, server='workflow_server',
                          client=with_gpu(way, 'workflow cuda 7 --size 64K --frames 10')) for way in ('dmabuf', 'address'))),
]

ONE, ONE_MORE = split(
    [Case('ibv_devinfo', 20, 'devinfo'), *CHECK, *FOREIGN, *over('verbs', *COMMAND), *POST_LISTS, *PACKED, *WORKFLOW, *RAW,
     *SCENARIOS],
    'ibv*', 'check: *', '*: serve and *', 'verbs: post lists *', 'verbs: small *', 'verbs: bench workflow', 'verbs: raw verbs',
    'tcp: scenarios atomic', 'verbs: scenarios thread', 'verbs: scenarios manual', 'verbs: scenarios by*',
    'verbs: what is *')
# What happens to tcp does so between network namespaces, too (tests/integration/test_netns.c).
TWO, TWO_MORE = split(
    [*FOREIGN, *over_all(*COMMAND), *ENCRYPTED, *CLASS, *NO_ROOM, *RAW, *FOREIGN_FAULTS, *FAULTS],
    'ibv*', 'rping', 'ib_write_bw', 'verbs: *', 'auto: *', 'killed server: rping', 'tcp: serve and get',
    'tcp: bench encrypted', 'tcp: link down 4 s', 'tcp: reordering', 'tcp: killed server, get again')
RAILS, RAILS_MORE = split(RAILS, '*')
ON_TWO = ['on_cables 10.0.0.1', 'on_cables 10.0.0.2']
WITH_TWO_CARDS = ['on_cables 10.0.0.1 10.0.1.1', 'on_cables 10.0.0.2 10.0.1.2']

SUITES = [
    # The longest first, as the others find their places beside it.
    Suite('peermem', '512M', 2, ON_TWO, [
        *REMOTE, *GPU, *PEERMEM,
        # A task waits for ever for a lock that was freed, and the machine with it or not.  The last case, as it costs one.
        Case('broken: unreferenced', 15, 'broken unreferenced',
             or_fails='took more than|the machine is gone|BUG: |Oops|general protection'),
    ], devices=peermem.devices, options='slub_debug=FZP'),
    Suite('one', '1G', 2, ['on_dummy $server'], ONE),
    Suite('two', '512M', 1, ON_TWO, TWO, sound=SOUND[:1]),
    Suite('rails', '512M', 1, WITH_TWO_CARDS, RAILS, cables=2, sound=SOUND),
    Suite('more-one', '1G', 2, ['on_dummy $server'], ONE_MORE, asked=True),
    Suite('more-two', '512M', 1, ON_TWO, TWO_MORE, sound=SOUND[:1], asked=True),
    Suite('more-rails', '512M', 1, WITH_TWO_CARDS, RAILS_MORE, cables=2, sound=SOUND, asked=True),
    Suite('endurance', '512M', 1, ON_TWO, ENDURANCE, sound=SOUND[:1], asked=True),
    Suite('endurance-rails', '512M', 1, WITH_TWO_CARDS, ENDURANCE_RAILS, cables=2, sound=SOUND, asked=True),
    # What must be seen as failure.
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
