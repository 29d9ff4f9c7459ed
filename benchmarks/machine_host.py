# SPDX-License-Identifier: BSD-2-Clause
"""Sections of benchmarks/machine that need no GPU, except those of streams."""
import json
import os
import resource
import statistics
import sys
import tempfile

from machine_run import HERE, Goal, Section, plural, size_text

GB = 1e9
LARGE = 16      # cores of a large machine
OPERATIONS = ('write', 'read', 'send')


def ceiling_row(run, operation, sockets, size, *more):
    seconds = run.seconds if size[-1] == 'K' or size in ('1M', '16M') else max(run.seconds, 0.5)
    return run.script('tcp_ceiling', '--json', '--op', operation, '--sockets', sockets, '--sizes', size, '--rounds', run.rounds,
                      '--seconds', seconds, '--command', run.path('peerlane'), '--raw', run.path('benchmarks/raw_sockets'), *more)[0]


def least_of(sockets, size):
    """Returns the least ratio to plain sockets with as many threads."""
    if size == '16K':
        return 0.5
    return 0.85 if sockets <= 4 else 0.7 if sockets <= 8 else 0.5


def one_peer(run, operation, size, counts):
    """Measures numbers of sockets, and then the default number next to the best of them."""
    best = None
    for count in counts:
        with run.part():
            row = ceiling_row(run, operation, count, size)
            best = max(best or 0, row['bytes_per_second'])
            run.figure(f'{operation} {size}, {plural(count, "socket")}', row['bytes_per_second'] / GB, 'GB/s', 'plain sockets',
                       row['ceiling'] / GB, row['ratio'], Goal('ratio', least=least_of(count, size), cores=LARGE),
                       row['seconds_per_gigabyte'])
    if size == '16K':
        return
    with run.part():
        row = ceiling_row(run, operation, 0, size)
        run.figure(f'{operation} {size}, default lanes', row['bytes_per_second'] / GB, 'GB/s', 'best number of sockets',
                   best and best / GB, goal=Goal('ratio', least=0.8, cores=LARGE), cost=row['seconds_per_gigabyte'])


def tcp(run):
    counts = [count for count in (1, 2, 4, 8, 16) if count <= max(2, run.cores)]
    for size in ('1M', '64K', '16M', '16K'):
        for operation in OPERATIONS:
            one_peer(run, operation, size, counts if size != '16K' else [count for count in counts if count <= 4])


def available_memory():
    """Returns the bytes that programs can take without swapping."""
    with open('/proc/meminfo', encoding='ascii') as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith('MemAvailable:'))


def tcp_large(run):
    """Plain sockets and the command each have the size in both processes, one after the other."""
    for size, count in (('64M', 64 << 20), ('1G', 1 << 30)):
        needed, found = 3 * count, available_memory()
        if found < needed:
            run.not_measured(f'messages of {size}', f'{found / (1 << 30):.1f} of {needed / (1 << 30):.1f} GiB of memory available')
            continue
        for operation in OPERATIONS:
            one_peer(run, operation, size, (1, 8) if run.cores >= LARGE else (1,))


def posters(run, operation, peers, sockets, size, depth):
    return run.json('tcp_posters', operation, peers, peers, sockets, size, depth, run.seconds)['bytes_per_second']


def eight_peers(run, operations, peers, sockets, size, depth):
    """Compares with plain sockets that have as many bytes in buffers."""
    plain, rates = [], {operation: [] for operation in operations}
    for _ in range(run.rounds):
        plain.append(run.json('raw_sockets', peers * sockets, size, peers * size * depth, run.seconds)['bytes_per_second'])
        for operation in operations:
            rates[operation].append(posters(run, operation, peers, sockets, size, depth))
    for operation in operations:
        ratio = statistics.median(rate / raw for rate, raw in zip(rates[operation], plain))
        run.figure(f'{peers} peers, {operation} {size_text(size)}, {plural(sockets, "socket")} each',
                   statistics.median(rates[operation]) / GB, 'GB/s', 'plain sockets', statistics.median(plain) / GB, ratio,
                   Goal('ratio', least=least_of(sockets, size), cores=LARGE))


def tcp_peers(run):
    large = run.cores >= LARGE
    for size, depth in ((1 << 16, 128), (1 << 20, 32), (1 << 18, 32)):
        for sockets in (1, 2, 4, 8) if large else (1,):
            with run.part():
                eight_peers(run, ('send',) if size == 1 << 18 else OPERATIONS, 8 if large else 2, sockets, size, depth)


def tcp_encrypted(run):
    """Each row has the cipher's rate on one core, and that of plain sockets, of the same rounds."""
    for sockets in (1, 2, 4, 8) if run.cores >= LARGE else (1,):
        for size in ('64K', '1M'):
            with run.part():
                row = ceiling_row(run, 'write', sockets, size, '--encrypt')
                run.figure(f'encrypted, write {size}, {plural(sockets, "socket")}', row['bytes_per_second'] / GB, 'GB/s',
                           '1 / (1/A + 1/R)', row['ceiling'] / GB, row['ratio'], Goal('ratio', least=0.85, cores=LARGE),
                           row['seconds_per_gigabyte'], f'A {row["cipher"] / GB:.3g}, R {row["plain"] / GB / sockets:.3g} a socket')


def tcp_manual(run):
    for depth in (1, 64):
        rates = run.medians('--fabric', 'tcp', '--op', 'write', '--size', '8,64K,1M', '--depth', depth)
        for size, rate in rates.items():
            run.figure(f'manual progress, write {size_text(size)}, {depth} in flight', rate / GB, 'GB/s')
    for progress in ('manual', 'thread'):
        times = run.medians('--fabric', 'tcp', '--latency', '--op', 'send', '--size', 8, '--progress', progress, of='latency')
        run.figure(f'message of 8 bytes, {progress} progress', times[8], 'us')


# Cases of tcp_vs_peers: the other program, and the goal.
TOOLS = {
    'latency-send': ('ucx_perftest', Goal('ratio', least=1, cores=2)),
    'latency-write': ('ucx_perftest', Goal('ratio', least=1, cores=2)),
    'write-16M-ucx': ('ucx_perftest', Goal('ratio', least=1.5, cores=2)),
    'write-16M-iperf3': ('iperf3', Goal('ratio', least=1, cores=2)),
}


def tcp_tools(run):
    """Measures Peerlane also where the other program is missing."""
    for case, (tool, goal) in TOOLS.items():
        with run.part(), tempfile.NamedTemporaryFile('r', encoding='utf-8') as file:
            run.output(sys.executable, os.path.join(HERE, 'tcp_vs_peers'), '--json', file.name, '--rounds', run.rounds, '--seconds', 1,
                       '--attempts', 0, '--command', run.path('peerlane'), case, most=120)
            row = json.load(file)['rows'][0]
            run.figure(row['what'], row['peerlane'], row['unit'], row['peer'], row['peer_value'], row['ratio'], goal,
                       not_judged=row['not_judged'])
            if row['peer_value'] is None:
                run.not_measured(row['peer'], f'no {tool}')


def local_threads(run):
    """Each line of the program: threads, writes a second, nanoseconds, nanoseconds of the 99.9th percentile."""
    rates = {}
    for count in [count for count in (1, 2, 8) if count <= run.cores]:
        with run.part():
            rounds = [[float(word) for word in run.program('local_threads', 'local', 8, count, run.seconds).split()]
                      for _ in range(run.rounds)]
            rates[count] = statistics.median(words[1] for words in rounds)
            goal = {2: Goal('ratio', least=1.8, cores=4), 8: Goal('ratio', least=6, cores=LARGE)}.get(count)
            peer = ('one thread', rates[1] / 1e6) if goal and 1 in rates else ()
            run.figure(f'local, 8 bytes, {plural(count, "thread")}', rates[count] / 1e6, 'Mops/s', *peer, goal=goal)
            run.figure(f'local, 8 bytes, {plural(count, "thread")}, p99.9', statistics.median(words[3] for words in rounds) / 1e3,
                       'us', goal=Goal('figure', most=1, cores=LARGE))


def peer_rate(run):
    rates = {}
    for count in [count for count in (1, 8, 16) if count <= max(2, run.cores)]:
        with run.part():
            rounds = [run.json('peer_rate', 'thread', count, count, 8, max(run.seconds, 0.2)) for _ in range(run.rounds)]
            rates[count], plain = (statistics.median(each[of]['per_second'] for each in rounds) for of in ('peerlane', 'sockets'))
            run.figure(f'tcp, 8 bytes, {plural(count, "thread")}, a peer each', rates[count] / 1e3, 'kops/s', 'plain sockets',
                       plain / 1e3)
            if count > 1:
                run.figure(f'tcp, 8 bytes, {count} threads next to one', rates[count] / 1e3, 'kops/s', 'one thread',
                           rates[1] / 1e3 if 1 in rates else None,
                           goal=Goal('ratio', least=0.75 * count, cores=LARGE))


# -- many peers, regions and grants ------------------------------------------------------------------------------

DESCRIPTORS = 2         # of a peer, at each end
DESCRIPTORS_MORE = 200  # of a process
COUNTS = (1, 1000, 100000)


def many_peers(run, count):
    needed, limit = DESCRIPTORS * count + DESCRIPTORS_MORE, resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if limit not in (resource.RLIM_INFINITY, -1) and limit < needed:
        run.not_measured(plural(count, 'peer'), f'{needed:,} descriptors are needed, {limit:,} allowed (ulimit -Hn)')
        return
    for name, key in (('', ''), (' with a key', 'a key of thirty-two characters..')):
        with run.part():
            rounds = [run.json('scale', 'connect', count, key) for _ in range(run.rounds)]
            rate = statistics.median(each['per_second'] for each in rounds)
            run.figure(f'{plural(count, "connection")} at once{name}', rate, '/s')
            run.figure(f'{plural(count, "connection")} at once{name}, failed', max(each['failed'] for each in rounds), '',
                       goal=Goal('figure', most=0))


def scale_turns(run, counts):
    one = None
    for count in counts:
        with run.part():
            time = run.median(lambda count=count: run.json('scale', 'turns', count)['microseconds'])
            one = one or time
            run.figure(f'a write of 8 bytes to each of {plural(count, "peer")}', time, 'us', *(('one peer', one) if count > 1 else ()))


def scale_objects(run, subject, members):
    """Calls beside many objects may take three times as long as beside one: no call looks at all of them."""
    first = {}
    for count in COUNTS:
        with run.part():
            rounds = [run.json('scale', subject, count) for _ in range(run.rounds)]
            for member, call in members.items():
                time = statistics.median(each[member] for each in rounds)
                first.setdefault(member, time)
                more = {'goal': Goal('ratio', most=3)} if count > 1 else {}
                run.figure(f'{call} beside {plural(count, subject[:-1])}', time, 'us',
                           *((f'beside one {subject[:-1]}', first[member]) if count > 1 else ()), **more)


def scale(run):
    scale_objects(run, 'regions', {'register_microseconds': 'register', 'deregister_microseconds': 'deregister'})
    scale_objects(run, 'grants', {'share_microseconds': 'share', 'revoke_microseconds': 'revoke',
                                  'deregister_microseconds': 'deregister with a grant'})
    for count in (1, 1000, 4000):
        many_peers(run, count)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    scale_turns(run, [count for count in (1, 1000, 4000) if limit < 0 or limit >= DESCRIPTORS * count + DESCRIPTORS_MORE])


SECTIONS = [
    Section('tcp', 'one peer over sockets, next to plain sockets', 400, ['raw_sockets'], tcp),
    Section('tcp-peers', 'eight peers over sockets, a thread for each', 200, ['raw_sockets', 'tcp_posters'], tcp_peers),
    Section('tcp-encrypted', 'encrypted sockets, next to the cipher and plain sockets', 100, ['raw_sockets'], tcp_encrypted),
    Section('tcp-large', 'messages of 64 MiB and 1 GiB, next to plain sockets', 200, ['raw_sockets'], tcp_large),
    Section('tcp-tools', 'latency and large writes, next to UCX and iperf3', 200, ['2 cores', 'core_distance', 'command taskset'],
            tcp_tools),
    Section('tcp-manual', 'sockets without threads, and latency', 40, [], tcp_manual),
    Section('threads', 'several threads of one context over local', 40, ['local_threads'], local_threads),
    Section('peer-rate', 'a peer for each of 1, 8 and 16 threads over sockets', 60, ['peer_rate'], peer_rate),
    Section('scale', 'up to 4,000 peers, 100,000 regions and grants', 150, ['scale'], scale),
]
