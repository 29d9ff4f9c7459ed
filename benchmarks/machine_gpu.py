# SPDX-License-Identifier: BSD-2-Clause
"""Sections of benchmarks/machine about GPU memory.  Those of `bench workflow` simulate the device if there is no GPU."""
import glob
import math
import os
import re
import shutil
import sys
import tempfile

from machine_run import HERE, Failed, Goal, Section, size_text

GB = 1e9
KINDS = ('alloc', 'pool', 'mapped', 'managed')
SCENARIOS = [('tcp', 'alloc', 'thread'), ('tcp', 'alloc', 'manual'), ('tcp', 'pool', 'thread-key'), ('tcp', 'mapped', 'manual-encrypted'),
             ('tcp', 'mapped', 'thread'), ('local', 'alloc', 'thread'), ('local', 'alloc', 'manual'), ('local', 'mapped', 'thread')]
PROGRAMS = ('test_gpu', 'test_gpu_stream', 'test_gpu_frames', 'test_gpu_gather', 'test_gpu_host_gather', 'test_gpu_host_mixed',
            'test_gpu_kept', 'test_gpu_local', 'test_gpu_ring', 'test_gpu_share')
# Blocks of a vector between two GPUs: GB/s of the kernel, and of prepared vectors.
BLOCK_GOALS = {(256, 4): (40, 70), (256, 16): (120, 170), (256, 64): (230, 270), (4096, 4): (120, 260), (4096, 16): (250, 320),
               (4096, 64): (320, 340)}


def floats(pattern, text):
    found = re.search(pattern, text)
    return [float(value) for value in found.groups()] if found else None


def pairs(run):
    """Returns the pairs of GPUs to measure: two of them, and the first with itself."""
    return ([(0, 1)] if len(run.gpus) > 1 else []) + [(0, 0)]


def ends(run):
    """Returns the options of `bench` for memory of two GPUs, or of one that both processes use."""
    return ['--memory', 'cuda:0', '--peer-memory', 'cuda:1' if len(run.gpus) > 1 else 'cuda:0']


# -- tests ---------------------------------------------------------------------------------------------------


def kinds_wanted():
    return os.environ.get('KINDS', ' '.join(KINDS)).split()


def tests_of(run, what, *command, environment=None):
    """Runs a program of tests; reports the numbers of passed and skipped cases, and its failed checks."""
    left_out = [kind for kind in KINDS if kind not in kinds_wanted()]
    chosen = {'TEST_CASES': '!(' + '|'.join(f'*{kind}*' for kind in left_out) + ')'} if left_out else {}
    text = run.output(*command, environment={**chosen, **(environment or {})}, status_matters=False, most=math.inf)
    cases = text.split('[  PASSED  ]')[0]
    run.figure(what, len(re.findall(r'^\[       OK', cases, re.M)), f'passed, {len(re.findall("^.  SKIPPED .", cases, re.M))} skipped')
    broken = re.findall(r'^\[  FAILED  \] (?!\d)(.*)|^(.*(?:check failed|ended by).*)', text, re.M)
    if broken or '[  PASSED  ]' not in text:
        run.failed(f'{what}: ' + '; '.join(''.join(each) for each in broken[:12] or [[text.strip()[-300:]]]))


def gpu_tests(run):
    for fabric, kind, setting in SCENARIOS:
        with run.part():
            if kind not in kinds_wanted():
                continue
            more = ['--fabric', 'local', '--one-sided'] if fabric == 'local' else []
            tests_of(run, f'scenarios over {fabric}, {kind}, {setting}', run.path('tests/test_scenarios'), *more, '--memory', kind,
                     '--setting', setting)
    for program in PROGRAMS:
        if os.access(run.path('tests/' + program), os.X_OK) and (program != 'test_gpu_share' or 'mapped' in kinds_wanted()):
            with run.part():
                tests_of(run, program, run.path('tests/' + program))
    # Real copies of the GPU, over a stand-in for a card that takes no dma-buf.
    if os.access(run.path('tests/card/test_card_staging'), os.X_OK):
        folders = [os.path.abspath(run.path('tests/card')), *filter(None, [run.environment.get('LD_LIBRARY_PATH')])]
        tests_of(run, 'staging over verbs, stand-in card', run.path('tests/card/test_card_staging'),
                 environment={'STANDIN_CARD': 'mlx4', 'LD_LIBRARY_PATH': ':'.join(folders), 'TEST_CASES': '*'})


def gpu_python(run):
    """Tests the package in PYTHONPATH, in a packed folder, or the wheel of the build."""
    root = os.path.dirname(HERE)
    folder = tempfile.mkdtemp()
    try:
        packed = os.path.abspath(run.path('python'))
        package = os.environ.get('PYTHONPATH') or (packed if os.path.isdir(packed) else None)
        if not package:
            run.output(sys.executable, os.path.join(root, 'bindings/python/make_wheel.py'), run.build, folder)
            run.output(sys.executable, '-m', 'zipfile', '-e', glob.glob(folder + '/*.whl')[0], folder)
            package = folder
        text = run.output(sys.executable, '-m', 'pytest', '-q', '-p', 'no:cacheprovider', 'gpu', folder=os.path.join(root, 'tests/python'),
                          environment={'PATH': f'{os.path.abspath(run.build)}:{run.environment["PATH"]}', 'PYTHONPATH': package},
                          most=math.inf)
        run.figure('package for Python', (floats(r'(\d+) passed', text) or [0])[0], 'passed')
    finally:
        shutil.rmtree(folder)


# -- the local fabric ----------------------------------------------------------------------------------------


def gpu_peer(run):
    kinds = [(0, 0, kind) for kind in ('mapped', 'pool') if kind in kinds_wanted()]
    for source, target, *kind in pairs(run) + kinds:
        with run.part():
            peer_figures(run, f'GPU {source} to {target}{"".join(f", {each}" for each in kind)}',
                         run.program('gpu_peer', source, target, *([1024, *kind] if kind else []), most=math.inf))


def peer_figures(run, name, text):
    for progress, size, *values in re.findall(r'^(.*): write (\d+) MiB ([\d.]+) GB/s, cuMemcpyPeerAsync ([\d.]+), ratio ([\d.]+)', text,
                                              re.M):
        rate, peer, ratio = map(float, values)
        run.figure(f'{name}, {size} MiB, {progress}', rate, 'GB/s', 'cuMemcpyPeerAsync', peer, ratio)
    for progress, *values in re.findall(r'^(.*): write 8 bytes p50 ([\d.]+) us, p99 [\d.]+ us; .* p50 ([\d.]+)', text, re.M):
        run.figure(f'{name}, 8 bytes, {progress}', float(values[0]), 'us', 'cuMemcpyPeerAsync', float(values[1]))


def gpu_frames(run):
    for source, target in pairs(run):
        with run.part():
            frame_figures(run, source, target, run.program('gpu_frames', source, target, most=math.inf))


def frame_figures(run, source, target, text):
    name, on_two = f'GPU {source} to {target}', source != target
    rate = floats(r'rate of 64 MiB frames: ([\d.]+) GB/s, cuMemcpyPeerAsync ([\d.]+), ratio ([\d.]+)', text)
    small = floats(r'latency of 8 KiB .*: p50 ([\d.]+) us', text)
    if not rate or not small:
        raise Failed('gpu_frames: no figures in ' + text[-300:])
    run.figure(f'{name}, frames of 64 MiB', rate[0], 'GB/s', 'cuMemcpyPeerAsync', rate[1], rate[2],
               Goal('ratio', least=0.97) if on_two else None)
    run.figure(f'{name}, 8 KiB to a waiting stream', small[0], 'us', goal=Goal('figure', most=15) if on_two else None)


def gpu_blocks(run):
    for source, target in pairs(run):
        text = run.program('gpu_blocks', source, target, 'manual', most=math.inf)
        for count, size, *values in re.findall(r'(\d+) x +(\d+) KiB: write +([\d.]+), prepared +([\d.]+), read +([\d.]+);.*'
                                               r'cuMemcpyBatchAsync +([\d.]+)', text):
            write, prepared, read, batch = map(float, values)
            goals = BLOCK_GOALS.get((int(count), int(size))) if source != target else None
            for what, value, least in zip(('write', 'prepared', 'read'), (write, prepared, read), (*(goals or (None, None)), None)):
                run.figure(f'GPU {source} to {target}, {count} x {size} KiB, {what}', value, 'GB/s', 'cuMemcpyBatchAsync', batch,
                           goal=Goal('figure', least=least) if least else None)


HOST_ROW = re.compile(r"""^(.*),\s+(\d+)\sx\s+(\d+)\sKiB,\sto\sand\sfrom\sthe\sGPU:
    \skernel\s+([\d.]+)\s\((\d+)\sof\s(\d+)\),.*?cuMemcpyAsync\s+([\d.]+);
    \skernel\s+([\d.]+)\s\((\d+)\sof\s(\d+)\),.*cuMemcpyAsync\s+([\d.]+)$""", re.M | re.X)


def host_figure(run, name, shape, way, values, most):
    """values: rate, how many vectors the kernel copied and of how many, rate of a loop of copies; most: that of one copy."""
    (count, size), (rate, by_kernel, of, loop) = map(int, shape), map(float, values)
    what, note = f'{name}, {count} x {size} KiB, {way} GPU', None
    if by_kernel < of:
        note = f'copies did the work of {of - by_kernel:.0f} of {of:.0f} vectors'
    if 'not locked' in name:
        goal = Goal('figure', least=10) if 64 <= size <= 1024 and count >= 64 else None
        run.figure(what, rate, 'GB/s', 'loop of cuMemcpyAsync', loop, goal=goal, note=note)
        return
    one = (count, size) == (4096, 64)
    run.figure(what, rate, 'GB/s', 'one copy' if one else 'loop of cuMemcpyAsync', most if one else loop,
               goal=Goal('ratio', least=0.9) if one else None, note=note)


def host_gpu(run):
    """Vectors between host memory and a GPU, locked and not, next to one copy and to a loop of copies."""
    bus = [None, None]
    with run.part():
        text = run.program('gpu_blocks', 'host', 0, 'manual', most=math.inf)
        bus = floats(r'to the GPU ([\d.]+), from it ([\d.]+)', text) or bus
        rows = HOST_ROW.findall(text)
        if not rows or not bus[0]:
            raise Failed('gpu_blocks: no figures in ' + text[-300:])
        for name, count, size, *values in rows:
            for way, some, most in zip(('to', 'from'), (values[:4], values[4:]), bus):
                host_figure(run, name, (count, size), way, some, most)
    rates = run.medians('--fabric', 'local', '--op', 'write', '--peer-memory', 'cuda:0', '--size', '64K,1M,16M,64M', '--depth', 16)
    for size, rate in rates.items():
        run.figure(f'write by the GPU\'s owner, {size_text(size)}', rate / GB, 'GB/s', 'one copy', bus[0],
                   goal=Goal('figure', least=20) if size >= 16 << 20 else None)


def gpu_latency(run):
    for size, time in run.medians('--fabric', 'local', '--latency', *ends(run), '--size', '8,1M', of='latency').items():
        run.figure(f'write and its completion, {size_text(size)}', time, 'us',
                   goal=Goal('figure', most=15, gpus=2) if size == 1 << 20 else None)


def gpu_kv(run):
    for operation in ('read', 'write'):
        with run.part():
            rates = run.medians('kv', '--op', operation, *ends(run), '--fabric', 'local', '--size', '4K,16K,64K,256K')
            for size, rate in rates.items():
                run.figure(f'KV cache, {operation}, blocks of {size_text(size)}', rate / GB, 'GB/s')


# -- tcp -----------------------------------------------------------------------------------------------------


GPU_TCP_GOALS = {('write', '1M'): Goal('figure', least=20, cores=16, gpus=2), ('write', '16M'): Goal('figure', least=30, cores=16, gpus=2),
                 ('write', '1G'): Goal('ratio', least=0.9, cores=16, gpus=2)}


def gpu_tcp(run):
    for operation, sizes in (('write', ('64K', '1M', '16M', '1G')), ('read', ('1M', '16M', '1G')), ('send', ('1M', '16M', '256M'))):
        for size in sizes:
            with run.part():
                host, gpu = (next(iter(run.medians('--fabric', 'tcp', '--progress', 'thread', '--op', operation, '--size', size,
                                                   *memory).values())) / GB for memory in ([], ends(run)))
                run.figure(f'GPU to GPU over tcp, {operation} {size}', gpu, 'GB/s', 'host to host', host,
                           goal=GPU_TCP_GOALS.get((operation, size)))
    with run.part():
        locked = run.command('--fabric', 'tcp', '--progress', 'thread', '--size', '1G', *ends(run))['staging_locked']
        run.figure('host memory locked for staging', locked / (1 << 20), 'MiB', goal=Goal('figure', most=256))
    for memory in ([], ends(run)):
        with run.part():
            times = run.medians('--fabric', 'tcp', '--latency', '--op', 'send', '--size', 8, *memory, of='latency')
            run.figure(f'message of 8 bytes, {"GPU to GPU" if memory else "host to host"}', times[8], 'us')


def nccl(run):
    """NCCL takes both processes of one GPU for two hosts.  PyTorch gets no libraries of a packed folder."""
    settings = {'LD_LIBRARY_PATH': os.environ.get('LD_LIBRARY_PATH', ''),
                'NCCL_NET': 'Socket', 'NCCL_SOCKET_IFNAME': 'lo', 'NCCL_P2P_DISABLE': '1', 'NCCL_SHM_DISABLE': '1', 'NCCL_IB_DISABLE': '1'}
    ours = run.medians('--fabric', 'tcp', '--progress', 'thread', '--op', 'send', '--size', '1G', *ends(run))[1 << 30]
    for threads in (4, None, 16):
        with run.part():
            more = {'NCCL_NSOCKS_PERTHREAD': '4', 'NCCL_SOCKET_NTHREADS': str(threads)} if threads else {}
            text = run.output(sys.executable, os.path.join(HERE, 'nccl_socket.py'), '--timeout', 60, environment={**settings, **more},
                              most=80)
            rate = floats(r'([\d.]+) +GB/s', text)
            if not rate:
                raise Failed('nccl_socket.py: ' + text.strip()[-300:])
            run.figure(f'message of 1G, {f"{threads} threads of 4 sockets" if threads else "default"}', ours / GB, 'GB/s', 'NCCL', rate[0])


# -- frames of a workflow --------------------------------------------------------------------------------------


def workflow(run, fabric, goals):
    """goals: arm -> (arm to compare with, least ratio, sizes)."""
    compute = 'cuda:0' if run.gpus else 'simulated'
    results = run.workflow('--fabric', fabric, '--compute', compute, '--arms', 'A,AO,B,BO,BP,S', '--size', '1M,4M,8M')
    rates = {(row['arm'], row['size']): row['bytes_per_second'] / GB for row in results}
    for (arm, size), rate in rates.items():
        run.figure(f'{fabric}, {arm}, {size_text(size)}, {"GPU" if run.gpus else "simulated"}', rate, 'GB/s',
                   *(('A', rates['A', size]) if arm != 'A' else ()))
        for peer, least, sizes in goals.get(arm, ()):
            if size in sizes:
                run.figure(f'{fabric}, {arm} next to {peer}, {size_text(size)}', rate, 'GB/s', peer, rates[peer, size],
                           goal=Goal('ratio', least=least, cores=16, gpus=1))


ALL_SIZES = (1 << 20, 4 << 20, 8 << 20)


def workflow_tcp(run):
    workflow(run, 'tcp', {'BO': [('AO', 1, ALL_SIZES)]})


def workflow_local(run):
    workflow(run, 'local', {'BP': [('BO', 0.8, ALL_SIZES)], 'S': [('BO', 1, ALL_SIZES), ('A', 10, (8 << 20,))]})


SECTIONS = [
    Section('workflow-tcp', 'frames through a device, over sockets', 60, [], workflow_tcp),
    Section('workflow-local', 'frames through a device, over local', 60, [], workflow_local),
    Section('gpu-peer', 'writes between GPUs of two processes, next to the driver', 120, ['gpu', 'gpu_peer'], gpu_peer),
    Section('gpu-frames', 'frames to CUDA streams that wait, next to the driver', 120, ['gpu', 'gpu_frames'], gpu_frames),
    Section('gpu-blocks', 'vectors of scattered blocks between GPUs', 120, ['gpu', 'gpu_blocks'], gpu_blocks),
    Section('host-gpu', 'vectors between host memory, locked and not, and a GPU', 120, ['gpu', 'gpu_blocks'], host_gpu),
    Section('gpu-latency', 'a write between GPUs and its completion', 30, ['gpu'], gpu_latency),
    Section('gpu-kv', 'blocks of a KV cache between GPUs', 40, ['gpu'], gpu_kv),
    Section('gpu-tcp', 'GPU to GPU over sockets, next to host to host', 150, ['gpu'], gpu_tcp),
    Section('nccl', 'messages over sockets, next to NCCL', 250, ['gpu', 'module torch'], nccl),
    Section('gpu-python', 'tests of the package for Python on GPU memory', 250, ['gpu', 'module torch', 'module pytest'], gpu_python),
    Section('gpu-tests', 'scenarios and tests on GPU memory', 1500, ['gpu'], gpu_tests),
]
