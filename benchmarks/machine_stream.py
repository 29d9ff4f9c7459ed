# SPDX-License-Identifier: BSD-2-Clause
"""Sections of benchmarks/machine about streams of frames in host memory."""
import os
import statistics

from machine_run import Goal, Section, size_text

GB = 1e9
LARGE = 16      # cores of a large machine


def two_cores():
    """Returns two processors that this process may use, of two cores if there are."""
    allowed = sorted(os.sched_getaffinity(0))
    try:
        with open(f'/sys/devices/system/cpu/cpu{allowed[0]}/topology/thread_siblings', encoding='ascii') as mask:
            siblings = int(mask.read().strip().replace(',', ''), 16)
    except OSError:
        siblings = 0
    return allowed[0], next((core for core in allowed[1:] if not siblings >> core & 1), allowed[-1])


def fanout_rate(run, fabric, size, subscribers):
    return run.median(lambda: run.json('stream_fanout', fabric, size, max(run.seconds, 0.5), subscribers)['frames_per_second'])


def stream_fanout(run):
    """Eight subscribers that can be lapped slow the publisher by a factor of 1.2 at most."""
    for fabric, size in (('tcp', 1 << 20), ('tcp', 1 << 16), ('tcp', 4096), ('local', 4096), ('raw', 4096)):
        with run.part():
            one, eight = (fanout_rate(run, fabric, size, count) for count in (1, 8))
            run.figure(f'publisher of 8 subscribers, {"no library" if fabric == "raw" else fabric}, {size_text(size)}', eight / 1e3,
                       'kframe/s', 'of one subscriber', one / 1e3,
                       goal=None if fabric == 'raw' else Goal('ratio', least=1 / 1.2, cores=LARGE))


def stream_in_place(run):
    for size in (64, 1 << 16, 1 << 20, 4 << 20):
        with run.part():
            times, lines = [], []
            for _ in range(run.rounds):
                times.append(run.json('stream_rate', 'local', size, max(run.seconds, 0.5), 64, 128, 1, 100, 1000)['latency_p50_us'])
                lines.append(float(run.program('core_distance', *two_cores())) / 1e3)
            ratio = statistics.median(time / line for time, line in zip(times, lines))
            run.figure(f'frame in place, {size_text(size)}', statistics.median(times), 'us', 'cache line, both ways',
                       statistics.median(lines), ratio, Goal('ratio', most=3, cores=2))
    rate = run.median(lambda: run.json('stream_rate', 'local', 64, 1, 64, 32768, 1, 0, 5, 32)['frames_per_second'])
    run.figure('frames in place of 64 bytes, batches of 32', rate / 1e6, 'Mframe/s', goal=Goal('figure', least=10, cores=2))


def stream_tcp(run):
    for size in (1 << 20, 1 << 16, 8 << 20):
        with run.part():
            frames, reads, seconds = [], [], max(run.seconds, 0.4 if size < 8 << 20 else 1)
            for _ in range(run.rounds):
                frames.append(run.json('stream_rate', 'tcp', size, seconds, 8, 16)['bytes_per_second'])
                reads.append(run.bench('--fabric', 'tcp', '--progress', 'thread', '--op', 'read', '--size', size, '--working-set',
                                       16 * size, seconds=max(run.seconds, 0.3))[0]['bytes_per_second'])
            ratio = statistics.median(frame / read for frame, read in zip(frames, reads))
            run.figure(f'frames over tcp, {size_text(size)}', statistics.median(frames) / GB, 'GB/s', 'reads of as much memory',
                       statistics.median(reads) / GB, ratio, Goal('ratio', least=0.95) if size == 1 << 20 else None)


def stream_zmq(run):
    for size in (1 << 20, 1 << 16):
        with run.part():
            frames, messages = [], []
            for _ in range(run.rounds):
                frames.append(run.json('stream_rate', 'tcp', size, max(run.seconds, 0.4), 8, 16)['bytes_per_second'])
                messages.append(run.json('zmq_rate', size, max(run.seconds, 0.4), 8, 16)['bytes_per_second'])
            ratio = statistics.median(frame / message for frame, message in zip(frames, messages))
            run.figure(f'frames over tcp, {size_text(size)}', statistics.median(frames) / GB, 'GB/s', 'libzmq',
                       statistics.median(messages) / GB, ratio, Goal('ratio', least=2) if size == 1 << 20 else None)


SECTIONS = [
    Section('stream-tcp', 'frames over sockets, next to reads', 60, ['stream_rate'], stream_tcp),
    Section('stream-fanout', 'a publisher of 1 and 8 subscribers', 60, ['stream_fanout'], stream_fanout),
    Section('stream-in-place', 'frames in place, next to a cache line', 60, ['2 cores', 'stream_rate', 'core_distance'],
            stream_in_place),
    Section('stream-zmq', 'frames over sockets, next to libzmq', 40, ['stream_rate', 'zmq_rate'], stream_zmq),
]
