# SPDX-License-Identifier: BSD-2-Clause
"""Sections of benchmarks/machine that need no GPU."""
import statistics

from machine_run import Goal, Section, plural, size_text

GB = 1e9
LARGE = 16      # cores of a large machine
OPERATIONS = ('write', 'read', 'send')


def ceiling_rows(run, operation, sockets, sizes, *more):
    return run.script('tcp_ceiling', '--json', '--op', operation, '--sockets', ','.join(map(str, sockets)), '--sizes', sizes,
                      '--rounds', run.rounds, '--seconds', run.seconds, '--command', run.path('peerlane'),
                      '--raw', run.path('benchmarks/raw_sockets'), *more)


def least_of(sockets, size):
    """Returns the least ratio to plain sockets with as many threads."""
    if size == '16K':
        return 0.5
    return 0.85 if sockets <= 4 else 0.7 if sockets <= 8 else 0.5


def tcp(run):
    counts = [count for count in (1, 2, 4, 8, 16) if count <= max(2, run.cores)]
    for operation in OPERATIONS:
        for size in ('16K', '64K', '1M', '16M'):
            best = 0
            for count in counts if size != '16K' else [count for count in counts if count <= 4]:
                row = ceiling_rows(run, operation, [count], size)[0]
                best = max(best, row['bytes_per_second'])
                run.figure(f'{operation} {size}, {plural(count, "socket")}', row['bytes_per_second'] / GB, 'GB/s', 'plain sockets',
                           row['ceiling'] / GB, row['ratio'], Goal('ratio', least=least_of(count, size), cores=LARGE),
                           row['seconds_per_gigabyte'])
            if size == '16K':
                continue
            row = ceiling_rows(run, operation, [0], size)[0]
            run.figure(f'{operation} {size}, default lanes', row['bytes_per_second'] / GB, 'GB/s', 'best number of sockets',
                       best / GB, goal=Goal('ratio', least=0.8, cores=LARGE), cost=row['seconds_per_gigabyte'])


def posters(run, operation, peers, sockets, size, depth):
    return run.json('tcp_posters', operation, peers, peers, sockets, size, depth, run.seconds)['bytes_per_second']


def tcp_peers(run):
    peers = 8 if run.cores >= LARGE else 2
    for size, depth in ((1 << 16, 128), (1 << 20, 32)):
        for sockets in (1, 2, 4, 8) if run.cores >= LARGE else (1,):
            plain, rates = [], {operation: [] for operation in OPERATIONS}
            for _ in range(run.rounds):
                plain.append(run.json('raw_sockets', peers * sockets, size, 64 << 20, run.seconds)['bytes_per_second'])
                for operation in OPERATIONS:
                    rates[operation].append(posters(run, operation, peers, sockets, size, depth))
            for operation in OPERATIONS:
                ratio = statistics.median(rate / raw for rate, raw in zip(rates[operation], plain))
                run.figure(f'{peers} peers, {operation} {size_text(size)}, {plural(sockets, "socket")} each',
                           statistics.median(rates[operation]) / GB, 'GB/s', 'plain sockets', statistics.median(plain) / GB, ratio,
                           Goal('ratio', least=least_of(sockets, size), cores=LARGE))


def tcp_encrypted(run):
    for sockets in (1, 2, 4, 8) if run.cores >= LARGE else (1,):
        for row in ceiling_rows(run, 'write', [sockets], '64K,1M', '--encrypt'):
            run.figure(f'encrypted, write {row["size"]}, {plural(sockets, "socket")}', row['bytes_per_second'] / GB, 'GB/s',
                       '1 / (1/A + 1/R)', row['ceiling'] / GB, row['ratio'], Goal('ratio', least=0.85, cores=LARGE),
                       row['seconds_per_gigabyte'])


def tcp_manual(run):
    for depth in (1, 64):
        for row in run.bench('--fabric', 'tcp', '--op', 'write', '--size', '8,64K,1M', '--depth', depth):
            run.figure(f'manual progress, write {size_text(row["size"])}, {depth} in flight', row['bytes_per_second'] / GB, 'GB/s')
    for progress in ('manual', 'thread'):
        row = run.bench('--fabric', 'tcp', '--latency', '--op', 'send', '--size', 8, '--progress', progress)[0]
        run.figure(f'message of 8 bytes, {progress} progress', row['latency_us']['p50'], 'us')


def local_threads(run):
    """Each line of the program: threads, writes a second, nanoseconds, nanoseconds of the 99.9th percentile."""
    rates, tails = {}, {}
    for count in [count for count in (1, 2, 8) if count <= run.cores]:
        rounds = [[float(word) for word in run.program('local_threads', 'local', 8, count, run.seconds).split()]
                  for _ in range(run.rounds)]
        rates[count] = statistics.median(words[1] for words in rounds)
        tails[count] = statistics.median(words[3] for words in rounds)
        goal = {2: Goal('ratio', least=1.8, cores=4), 8: Goal('ratio', least=6, cores=LARGE)}.get(count)
        peer = ('one thread', rates[1] / 1e6) if goal else ()
        run.figure(f'local, 8 bytes, {plural(count, "thread")}', rates[count] / 1e6, 'Mops/s', *peer, goal=goal)
        run.figure(f'local, 8 bytes, {plural(count, "thread")}, p99.9', tails[count] / 1e3, 'us', goal=Goal('figure', most=1, cores=LARGE))


def peer_rate(run):
    rates = {}
    for count in [count for count in (1, 8, 16) if count <= max(2, run.cores)]:
        rounds = [run.json('peer_rate', 'thread', count, count, 8, max(run.seconds, 0.2)) for _ in range(run.rounds)]
        rates[count], plain = (statistics.median(each[of]['per_second'] for each in rounds) for of in ('peerlane', 'sockets'))
        run.figure(f'tcp, 8 bytes, {plural(count, "thread")}, a peer each', rates[count] / 1e3, 'kops/s', 'plain sockets', plain / 1e3)
        if count > 1:
            run.figure(f'tcp, 8 bytes, {count} threads next to one', rates[count] / 1e3, 'kops/s', 'one thread', rates[1] / 1e3,
                       goal=Goal('ratio', least=0.75 * count, cores=LARGE))


def stream_fanout(run):
    """Eight subscribers that can be lapped slow the publisher by a factor of 1.2 at most."""
    for fabric in ('local', 'tcp', 'raw'):
        one, eight = (run.median(lambda count=count: run.json('stream_fanout', fabric, 4096, max(run.seconds, 0.5),
                                                              count)['frames_per_second']) for count in (1, 8))
        run.figure(f'publisher of 8 subscribers, {"no library" if fabric == "raw" else fabric}', eight / 1e3, 'kframe/s',
                   'of one subscriber', one / 1e3, goal=None if fabric == 'raw' else Goal('ratio', least=1 / 1.2, cores=LARGE))


def stream_in_place(run):
    for size in (64, 1 << 16, 1 << 20, 4 << 20):
        times, lines = [], []
        for _ in range(run.rounds):
            times.append(run.json('stream_rate', 'local', size, max(run.seconds, 0.5), 64, 1024, 1, 100, 1000)['latency_p50_us'])
            lines.append(float(run.program('core_distance', 0, 1)) / 1e3)
        ratio = statistics.median(time / line for time, line in zip(times, lines))
        run.figure(f'frame in place, {size_text(size)}', statistics.median(times), 'us', 'cache line, both ways',
                   statistics.median(lines), ratio, Goal('ratio', most=3, cores=2))
    rate = run.median(lambda: run.json('stream_rate', 'local', 64, 1, 64, 32768, 1, 0, 5, 32)['frames_per_second'])
    run.figure('frames in place of 64 bytes, batches of 32', rate / 1e6, 'Mframe/s', goal=Goal('figure', least=10, cores=2))


def stream_tcp(run):
    for size in (1 << 16, 1 << 20, 8 << 20):
        frames, reads = [], []
        for _ in range(run.rounds):
            frames.append(run.json('stream_rate', 'tcp', size, max(run.seconds, 0.4), 8, 16)['bytes_per_second'])
            reads.append(run.bench('--fabric', 'tcp', '--progress', 'thread', '--op', 'read', '--size', size, '--working-set',
                                   16 * size, seconds=max(run.seconds, 0.3))[0]['bytes_per_second'])
        ratio = statistics.median(frame / read for frame, read in zip(frames, reads))
        run.figure(f'frames over tcp, {size_text(size)}', statistics.median(frames) / GB, 'GB/s', 'reads of as much memory',
                   statistics.median(reads) / GB, ratio, Goal('ratio', least=0.95) if size == 1 << 20 else None)


def stream_zmq(run):
    frames, messages = [], []
    for _ in range(run.rounds):
        frames.append(run.json('stream_rate', 'tcp', 1 << 20, max(run.seconds, 0.4), 8, 16)['bytes_per_second'])
        messages.append(run.json('zmq_rate', 1 << 20, max(run.seconds, 0.4), 8, 16)['bytes_per_second'])
    ratio = statistics.median(frame / message for frame, message in zip(frames, messages))
    run.figure('frames over tcp, 1M', statistics.median(frames) / GB, 'GB/s', 'libzmq', statistics.median(messages) / GB, ratio,
               Goal('ratio', least=2))


SECTIONS = [
    Section('tcp', 'one peer over sockets, next to plain sockets', 400, ['raw_sockets'], tcp),
    Section('tcp-peers', 'eight peers over sockets, a thread for each', 150, ['raw_sockets', 'tcp_posters'], tcp_peers),
    Section('tcp-encrypted', 'encrypted sockets, next to the cipher and plain sockets', 100, ['raw_sockets'], tcp_encrypted),
    Section('tcp-manual', 'sockets without threads, and latency', 40, [], tcp_manual),
    Section('threads', 'several threads of one context over local', 40, ['local_threads'], local_threads),
    Section('peer-rate', 'a peer for each of 1, 8 and 16 threads over sockets', 60, ['peer_rate'], peer_rate),
    Section('stream-fanout', 'a publisher of 1 and 8 subscribers', 60, ['stream_fanout'], stream_fanout),
    Section('stream-in-place', 'frames in place, next to a cache line', 60, ['2 cores', 'stream_rate', 'core_distance'],
            stream_in_place),
    Section('stream-tcp', 'frames over sockets, next to reads', 60, ['stream_rate'], stream_tcp),
    Section('stream-zmq', 'frames over sockets, next to libzmq', 30, ['stream_rate', 'zmq_rate'], stream_zmq),
]
