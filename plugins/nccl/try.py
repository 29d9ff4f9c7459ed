#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Measures NCCL on two GPUs of this host, without P2P: over NCCL's sockets, its shared memory, and the plugin.

Usage: try.py [--limit SECONDS] [--quick] [--only TEXT]... PLUGIN

PLUGIN is the path of libnccl-net-peerlane.so.  Needs PyTorch with NCCL.  Each setting is a run of two processes with a
time limit; all together end within --limit (240).  --only: settings whose name begins with one of these texts.  Prints a table of
medians: latency of an all_reduce of 8 bytes, bus bandwidth of all_reduce, bandwidth of send/recv, and CPU seconds for each
GB that a rank sent.  All results are checked.
The exit status is 1 if a run failed, or did not use the network that it should use.
"""
import json
import os
import re
import statistics
import sys
import tempfile
import time

import ranks

BASE = {
    'NCCL_P2P_DISABLE': '1',
    'NCCL_SHM_DISABLE': '1',
    'NCCL_NVLS_ENABLE': '0',
    'NCCL_CUMEM_ENABLE': '0',
    'NCCL_DEBUG': 'INFO',
    'NCCL_DEBUG_SUBSYS': 'INIT,NET,GRAPH',
    'PYTORCH_CUDA_ALLOC_CONF': 'expandable_segments:False',
    'MASTER_ADDR': '127.0.0.1',
}
SOCKETS = {'NCCL_NET_PLUGIN': 'none', 'NCCL_NET': 'Socket'}
TUNED = {'NCCL_SOCKET_NTHREADS': '4', 'NCCL_NSOCKS_PERTHREAD': '4'}
CHANNELS = {'NCCL_MIN_NCHANNELS': '4', 'NCCL_MIN_P2P_NCHANNELS': '4', 'NCCL_NCHANNELS_PER_NET_PEER': '4'}
ONE_CHANNEL = {'NCCL_MAX_NCHANNELS': '1', 'NCCL_MAX_P2P_NCHANNELS': '1', 'NCCL_NCHANNELS_PER_NET_PEER': '1'}
GPU_MEMORY = {'PEERLANE_GPU_MEMORY': '1', 'NCCL_CUMEM_ENABLE': '1'}
# Lines of NCCL's log that prove which network it used.
SHM, SOCKET, PEERLANE, PEERLANE_GPU = (
    r'via SHM', r'via NET/Socket/', r'via NET/Peerlane/', r'via NET/Peerlane/\d+/GDRDMA')
PORT = 29600


def settings(plugin, key):
    peerlane, tcp = {'NCCL_NET_PLUGIN': plugin, 'NCCL_NET': 'Peerlane'}, {'PEERLANE_FABRIC': 'tcp'}
    return [
        ('shared memory', SHM, SOCKETS | {'NCCL_SHM_DISABLE': '0'}),
        ('sockets', SOCKET, SOCKETS),
        ('sockets 4x4', SOCKET, SOCKETS | TUNED),
        ('peerlane', PEERLANE, peerlane),
        ('peerlane tcp', PEERLANE, peerlane | tcp),
        ('peerlane, GPU memory', PEERLANE_GPU, peerlane | GPU_MEMORY),
        ('peerlane tcp, GPU memory', PEERLANE_GPU, peerlane | tcp | GPU_MEMORY),
        ('shared memory, 4 channels', SHM, SOCKETS | CHANNELS | {'NCCL_SHM_DISABLE': '0'}),
        ('sockets 4x4, 4 channels', SOCKET, SOCKETS | TUNED | CHANNELS),
        ('peerlane, 4 channels', PEERLANE, peerlane | CHANNELS),
        ('peerlane tcp, 4 channels', PEERLANE, peerlane | CHANNELS | tcp),
        ('peerlane, GPU memory, 4 channels', PEERLANE_GPU, peerlane | CHANNELS | GPU_MEMORY),
        ('peerlane tcp, GPU memory, 4 channels', PEERLANE_GPU, peerlane | CHANNELS | tcp | GPU_MEMORY),
        ('peerlane tcp, encrypted, 4 channels', PEERLANE,
         peerlane | CHANNELS | tcp | {'PEERLANE_KEY_FILE': key, 'PEERLANE_ENCRYPT': '1'}),
        ('sockets 4x4, 1 channel', SOCKET, SOCKETS | TUNED | ONE_CHANNEL),
        ('peerlane, 1 channel', PEERLANE, peerlane | ONE_CHANNEL),
        ('peerlane tcp, 1 channel', PEERLANE, peerlane | ONE_CHANNEL | tcp),
        ('peerlane, GPU memory, 1 channel', PEERLANE_GPU, peerlane | ONE_CHANNEL | GPU_MEMORY),
    ]


# -- one rank ------------------------------------------------------------------------------------------------------

def rank_main(rank, quick):
    import resource

    import torch
    import torch.distributed as dist

    torch.cuda.set_device(rank)
    dist.init_process_group('nccl', rank=rank, world_size=2)
    results = {}

    def timed(action, repetitions):
        action()
        torch.cuda.synchronize()
        times = []
        for _ in range(5):
            dist.barrier()
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(repetitions):
                action()
            torch.cuda.synchronize()
            times.append((time.perf_counter() - begin) / repetitions)
        return statistics.median(times)

    def used_cpu():
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_utime + usage.ru_stime

    small = torch.ones(2, device='cuda')
    results['latency_us'] = 1e6 * timed(lambda: dist.all_reduce(small), 200)
    for name, size, repetitions in (('1m', 1 << 20, 50), ('256m', 1 << 28, 1 if quick else 4)):
        data = torch.zeros(size // 4, device='cuda')
        results['all_reduce_' + name] = size / timed(lambda: dist.all_reduce(data), repetitions) / 1e9

    # Content: a message of odd length in which each word differs.
    data = torch.arange(12345677, dtype=torch.int32, device='cuda') * (rank + 1)
    dist.all_reduce(data)
    assert torch.equal(data, torch.arange(12345677, dtype=torch.int32, device='cuda') * 3), 'all_reduce: wrong content'
    received = torch.empty_like(data)
    work = [dist.P2POp(dist.isend, data * (rank + 1), 1 - rank), dist.P2POp(dist.irecv, received, 1 - rank)]
    for request in dist.batch_isend_irecv(work):
        request.wait()
    assert torch.equal(received, data * (2 - rank)), 'send/recv: wrong content'

    size = 1 << (28 if quick else 30)
    data = torch.zeros(size // 4, device='cuda')

    def one_way():
        if rank == 0:
            dist.send(data, 1)
        else:
            dist.recv(data, 0)
    cpu = used_cpu()
    results['send_recv'] = size / timed(one_way, 1) / 1e9
    results['cpu_s_per_gb'] = (used_cpu() - cpu) / (6 * size / 1e9)
    print('RESULT ' + json.dumps(results), flush=True)
    dist.destroy_process_group()


# -- all settings --------------------------------------------------------------------------------------------------

def main():
    arguments = sys.argv[1:]
    quick = '--quick' in arguments
    arguments = [word for word in arguments if word != '--quick']
    if arguments[:1] == ['--rank']:
        return rank_main(int(arguments[1]), quick)
    limit = 240
    if arguments[:1] == ['--limit']:
        limit, arguments = int(arguments[1]), arguments[2:]
    only = ()
    while arguments[:1] == ['--only']:
        only, arguments = only + (arguments[1],), arguments[2:]
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    end = time.monotonic() + limit
    failed = 0
    print(f'{"setting":40} {"8 B":>7} {"1 MiB":>7} {"256 MiB":>8} {"send/recv":>10} {"CPU s":>6}  channels')
    print(f'{"":40} {"us":>7} {"GB/s":>7} {"GB/s":>8} {"GB/s":>10} {"a GB":>6}')
    with tempfile.TemporaryDirectory() as folder:
        key = os.path.join(folder, 'key')
        with open(key, 'wb', opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(os.urandom(32))
        for number, (name, net, environment) in enumerate(settings(os.path.abspath(arguments[0]), key)):
            left = end - time.monotonic()
            if only and not name.startswith(only):
                continue
            if left < 15:
                print(f'{name:40} not run: the time is over')
                continue
            limit = min(60, left)
            outputs, statuses = ranks.run_pair(os.path.abspath(__file__), ['--quick'] * quick,
                                               os.environ | BASE | environment, limit, PORT + number, folder)
            found = [re.search(r'^RESULT (.*)$', output, re.M) for output in outputs]
            if any(statuses) or not all(found) or not re.search(net, outputs[0]):
                failed += 1
                print(f'{name:40} FAILED: {ranks.describe_failure(statuses, limit)}')
                print('\n'.join('    ' + line for line in outputs[0].splitlines()[-30:]))
                continue
            result = json.loads(found[0][1])
            channels = re.search(r'(\d+) coll channels.*?(\d+) p2p channels', outputs[0])
            fabric = re.search(r'fabric (tcp|local|verbs), \d+ lanes', outputs[0])
            print(f'{name:40} {result["latency_us"]:7.1f} {result["all_reduce_1m"]:7.2f} {result["all_reduce_256m"]:8.2f} '
                  f'{result["send_recv"]:10.2f} {result["cpu_s_per_gb"]:6.3f}  '
                  f'{"/".join(channels.groups()) if channels else "?"} {fabric[1] if fabric else ""}', flush=True)
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
