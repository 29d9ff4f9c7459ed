#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Tests PyTorch over the plugin on two GPUs of this host, without P2P and shared memory.

Usage: torch_test.py [--limit SECONDS] [--only CASE,...] PLUGIN

PLUGIN is the path of libnccl-net-peerlane.so.  Each case is a run of two processes, over the plugin (between processes and,
with PEERLANE_FABRIC=tcp, over sockets) and, where results are compared, over NCCL's own sockets.  A case passes only if
NCCL's log shows that the bytes went through the plugin.  All together end within --limit (240).  Exit status 1: a case
failed.
"""
import hashlib
import json
import os
import re
import signal
import sys
import tempfile
import time

import ranks

BASE = {
    'NCCL_P2P_DISABLE': '1',
    'NCCL_SHM_DISABLE': '1',
    'NCCL_NVLS_ENABLE': '0',
    'NCCL_DEBUG': 'INFO',
    'NCCL_DEBUG_SUBSYS': 'INIT,NET',
    'MASTER_ADDR': '127.0.0.1',
    # A lost peer is an error of NCCL that the program sees, not an end of the process by PyTorch's watchdog.
    'TORCH_NCCL_ASYNC_ERROR_HANDLING': '0',
    'TORCH_NCCL_ENABLE_MONITORING': '0',
}
PORT = 29700


# -- cases: each runs in both ranks, and returns what must be equal over all networks --------------------------------

def model_and_data(torch, rank):
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 2048), torch.nn.GELU(),
                                torch.nn.Linear(2048, 10)).cuda()
    generator = torch.Generator().manual_seed(100 + rank)
    batches = [(torch.randn(256, 512, generator=generator).cuda(),
                torch.randint(0, 10, (256,), generator=generator).cuda()) for _ in range(8)]
    return model, batches


def train(torch, model, batches, steps=40):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(steps):
        data, labels = batches[step % len(batches)]
        loss = torch.nn.functional.cross_entropy(model(data), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0], losses
    return [f'{loss:.9e}' for loss in losses]


def case_ddp(torch, dist, rank):
    model, batches = model_and_data(torch, rank)
    return train(torch, torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1), batches)


def case_fsdp(torch, dist, rank):
    from torch.distributed.fsdp import FullyShardedDataParallel
    model, batches = model_and_data(torch, rank)
    return train(torch, FullyShardedDataParallel(model, use_orig_params=True), batches)


def case_sizes(torch, dist, rank):
    """Odd sizes of all collectives, checked against what they must give."""
    digest = hashlib.sha256()
    for size in (0, 1, 3, 17, 1023, 4097, 65537, 1000003, 12345677):
        mine = torch.arange(size, dtype=torch.int32, device='cuda') * (rank + 1)
        both = [torch.empty_like(mine) for _ in range(2)]
        dist.all_gather(both, mine)
        for other in range(2):
            assert torch.equal(both[other], torch.arange(size, dtype=torch.int32, device='cuda') * (other + 1)), size
        total = mine.clone()
        dist.all_reduce(total)
        assert torch.equal(total, torch.arange(size, dtype=torch.int32, device='cuda') * 3), size
        dist.broadcast(mine, 1)
        assert torch.equal(mine, torch.arange(size, dtype=torch.int32, device='cuda') * 2), size
        digest.update(total.cpu().numpy().tobytes())
        # Pieces of different sizes: rank 0 gives one word more.
        given = torch.arange(2 * size + 3, dtype=torch.int32, device='cuda') + 10 * rank
        sizes = [size + 1, size + 2] if rank == 0 else [size, size + 3]
        takes = [size + 1, size] if rank == 0 else [size + 2, size + 3]
        taken = torch.empty(sum(takes), dtype=torch.int32, device='cuda')
        dist.all_to_all_single(taken, given, takes, sizes)
        offset = 0 if rank == 0 else size + 1
        assert torch.equal(taken[:takes[0]], torch.arange(offset, offset + takes[0], dtype=torch.int32, device='cuda')), size
    for dtype in (torch.bfloat16, torch.float16, torch.float64, torch.uint8):
        data = torch.ones(99999, dtype=dtype, device='cuda')
        dist.all_reduce(data)
        assert bool((data == 2).all()), dtype
    return digest.hexdigest()


def case_graphs(torch, dist, rank):
    """Collectives in a CUDA graph, replayed."""
    data = torch.ones(1 << 20, device='cuda')
    dist.all_reduce(data)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(data)
        data.mul_(0.5)
    data.fill_(rank + 1)
    for _ in range(200):
        graph.replay()
    torch.cuda.synchronize()
    assert bool((data == 1.5).all()), data[:4]
    return data[0].item()


def case_communicators(torch, dist, rank):
    """100 communicators, made, used and destroyed one after the other, and 12 at once."""
    data = torch.ones(1000, device='cuda')
    for number in range(100):
        group = dist.new_group([0, 1])
        data.fill_(number)
        dist.all_reduce(data, group=group)
        assert data[999].item() == 2 * number
        dist.destroy_process_group(group)
    groups = [dist.new_group([0, 1]) for _ in range(12)]
    many = [torch.full((1 << 18,), float(number), device='cuda') for number in range(12)]
    work = [dist.all_reduce(each, group=group, async_op=True) for each, group in zip(many, groups)]
    for each in work:
        each.wait()
    assert [each[0].item() for each in many] == [2.0 * number for number in range(12)]
    return 'made'


def case_kill(torch, dist, rank):
    """Rank 1 is killed while data is under way: rank 0 gets an error of the network in bounded time."""
    data = torch.ones(64 << 20, device='cuda')
    dist.all_reduce(data)
    torch.cuda.synchronize()
    if rank == 1:
        print('READY', flush=True)
        while True:
            dist.all_reduce(data)
            torch.cuda.synchronize()
    begin = time.monotonic()
    group = dist.distributed_c10d._get_default_group()
    backend = group._get_backend(torch.device('cuda'))
    work = dist.all_reduce(data, async_op=True)
    while time.monotonic() < begin + 40:
        if work.is_completed():    # also after an error of NCCL, which wait() raises
            try:
                work.wait()
            except RuntimeError:
                break
            work = dist.all_reduce(data, async_op=True)
        time.sleep(0.001)
    else:
        raise AssertionError('rank 0 noticed nothing in 40 s')
    print(f'NOTICED {time.monotonic() - begin:.1f}', flush=True)
    backend.abort()
    return 'noticed'


CASES = {name[5:]: function for name, function in list(globals().items()) if name.startswith('case_')}
COMPARED = ('ddp', 'fsdp')
# NCCL 2.28.3 to 2.29.7 forget NCCL_NET_PLUGIN with the last communicator: these cases use the plugin by its default name.
UNLOADED = ('communicators',)


def rank_main(rank, name):
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(rank)
    dist.init_process_group('nccl', rank=rank, world_size=2)
    result = CASES[name](torch, dist, rank)
    print('RESULT ' + json.dumps(result), flush=True)
    if name == 'kill':
        os._exit(0)    # the communicator is gone, and its threads wait for nothing useful
    dist.destroy_process_group()


# -- both ranks ----------------------------------------------------------------------------------------------------

def kill_soon(process, file):
    """Kill rank 1 a second after it has begun to send."""
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        with open(file, encoding='utf-8', errors='replace') as text:
            if 'READY' in text.read():
                time.sleep(1)
                break
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)


def run_pair(name, environment, limit, port, folder):
    base = {key: value for key, value in os.environ.items() if key not in ('NCCL_NET_PLUGIN', 'NCCL_NET')}
    return ranks.run_pair(os.path.abspath(__file__), [name], base | BASE | environment, limit, port, folder,
                          kill_soon if name == 'kill' else None)


def check_run(name, net, outputs, statuses):
    """Return the results of both ranks, or raise ValueError with the reason."""
    if statuses != ([0, -signal.SIGKILL] if name == 'kill' else [0, 0]):
        raise ValueError(f'exit statuses {statuses}')
    if f'via NET/{net}/' not in outputs[0]:
        raise ValueError(f'NCCL did not use NET/{net}')
    if net == 'Peerlane' and os.environ.get('PEERLANE_GPU_MEMORY') == '1' and '/GDRDMA' not in outputs[0]:
        raise ValueError('NCCL did not use GPU memory')
    if net == 'Peerlane' and name != 'kill':
        sent = [int(number) for number in re.findall(r'NET/Peerlane : sent (\d+) bytes', outputs[0])]
        if not sum(sent):
            raise ValueError('no summary of the bytes that went through the plugin')
    results = [re.search(r'^RESULT (.*)$', output, re.M) for output in outputs[:1 if name == 'kill' else 2]]
    if not all(results):
        raise ValueError('a rank has no result')
    return [result[1] for result in results]


def networks(plugin, name, folder):
    peerlane = {'NCCL_NET_PLUGIN': plugin, 'NCCL_NET': 'Peerlane'}
    if name in UNLOADED:
        link = os.path.join(folder, 'libnccl-net.so')
        if not os.path.lexists(link):
            os.symlink(plugin, link)
        peerlane = {'NCCL_NET': 'Peerlane', 'LD_LIBRARY_PATH': folder + ':' + os.environ.get('LD_LIBRARY_PATH', '')}
    yield 'processes', 'Peerlane', peerlane
    yield 'tcp', 'Peerlane', peerlane | {'PEERLANE_FABRIC': 'tcp'}
    if name in COMPARED:
        yield 'NCCL\'s sockets', 'Socket', {'NCCL_NET_PLUGIN': 'none', 'NCCL_NET': 'Socket'}


def run_case(name, plugin, end, port, folder):
    """Return True if the case passed over all networks with equal results."""
    compared = {}
    passed = True
    for at, (label, net, environment) in enumerate(networks(plugin, name, folder)):
        left = end - time.monotonic()
        if left < 10:
            print(f'{name:15} {label:15} not run: the time is over')
            return False
        begin = time.monotonic()
        outputs, statuses = run_pair(name, environment, min(70, left), port + at, folder)
        try:
            compared[label] = check_run(name, net, outputs, statuses)
        except ValueError as error:
            passed = False
            print(f'{name:15} {label:15} FAILED: {error}')
            for rank, output in enumerate(outputs):
                print('\n'.join(f'    {rank}: {line}' for line in output.splitlines()[-25:]))
            continue
        noticed = re.search(r'NOTICED (\S+)', outputs[0])
        print(f'{name:15} {label:15} passed  {time.monotonic() - begin:5.1f} s'
              + (f', noticed after {noticed[1]} s' if noticed else ''), flush=True)
    if name in COMPARED and len({json.dumps(result) for result in compared.values()}) > 1:
        print(f'{name:15} FAILED: results differ: {compared}')
        return False
    return passed


def main():
    arguments = sys.argv[1:]
    if arguments[:1] == ['--rank']:
        return rank_main(int(arguments[1]), arguments[2])
    limit, names = 240, list(CASES)
    while len(arguments) > 2 and arguments[0] in ('--limit', '--only'):
        if arguments[0] == '--limit':
            limit = int(arguments[1])
        else:
            names = arguments[1].split(',')
        arguments = arguments[2:]
    if len(arguments) != 1 or not set(names) <= set(CASES):
        print(__doc__, file=sys.stderr)
        return 2
    end = time.monotonic() + limit
    with tempfile.TemporaryDirectory() as folder:
        results = [run_case(name, os.path.realpath(arguments[0]), end, PORT + 4 * at, folder)
                   for at, name in enumerate(names)]
    return 0 if all(results) else 1


if __name__ == '__main__':
    sys.exit(main())
