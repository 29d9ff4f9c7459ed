#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Tests PyTorch over the plugin on two GPUs of this host, or on one that both ranks share, without P2P and shared memory.

Usage: torch_test.py [--limit SECONDS] [--only CASE,...] [--jobs NUMBER] PLUGIN

PLUGIN is the path of libnccl-net-peerlane.so.  Each case is a run of two processes, over the plugin (between processes and,
with PEERLANE_FABRIC=tcp, over sockets; each also with NCCL's buffers in GPU memory) and, where results are compared, over
NCCL's own sockets.  A case passes only if NCCL's log shows that the plugin sent at least the bytes that its collectives move.
NUMBER (2) runs share the GPUs at a time, because most of their time is the start of PyTorch.  All together end within
--limit (240).  The cases that find most begin first.
Exit status 1: a case failed.
"""
import argparse
import concurrent.futures
import datetime
import hashlib
import json
import os
import re
import signal
import sys
import tempfile
import threading
import time
import typing

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


def train(torch, model, batches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(STEPS):
        data, labels = batches[step % len(batches)]
        loss = torch.nn.functional.cross_entropy(model(data), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0], losses
    return [f'{loss:.9e}' for loss in losses]


MODEL_BYTES = 4 * (512 * 2048 + 2048 + 2048 * 2048 + 2048 + 2048 * 10 + 10)
STEPS = 40


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
        part = torch.empty(size, dtype=torch.int32, device='cuda')
        dist.reduce_scatter_tensor(part, torch.arange(2 * size, dtype=torch.int32, device='cuda') * (rank + 1))
        assert torch.equal(part, torch.arange(size * rank, size * (rank + 1), dtype=torch.int32, device='cuda') * 3), size
        swapped = torch.empty_like(total)
        operations = [dist.P2POp(dist.isend, total * (rank + 1), 1 - rank), dist.P2POp(dist.irecv, swapped, 1 - rank)]
        for work in dist.batch_isend_irecv(operations) if size else ():
            work.wait()
        assert torch.equal(swapped, total * (2 - rank)), size
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


def case_all_reduce(torch, dist, rank):
    """Sizes from 8 bytes to 256 MiB, with the algorithm and protocol of the environment."""
    for size in (2, 1023, 65537, 1 << 20, 64 << 20):
        words = torch.arange(size, dtype=torch.int32, device='cuda') % 100003
        data = words * (rank + 1)
        dist.all_reduce(data)
        assert torch.equal(data, words * 3), size
    return 'reduced'


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


def case_split(torch, dist, rank):
    """Communicators that are split from one, which is bound to its device."""
    device = torch.device('cuda', torch.cuda.current_device())
    parent = torch.full((1 << 20,), float(rank + 1), device=device)
    dist.all_reduce(parent)
    groups = [dist.split_group(split_ranks=[[0, 1]]), dist.new_group([0, 1], device_id=device), dist.new_group([1, 0])]
    data = [torch.full((1 << 20,), float(rank + number), device=device) for number in range(len(groups))]
    work = [dist.all_reduce(each, group=group, async_op=True) for each, group in zip(data, groups)]
    for each in work:
        each.wait()
    for group in groups:
        dist.destroy_process_group(group)
    dist.all_reduce(parent)
    torch.cuda.synchronize()
    assert [each[-1].item() for each in data] == [2 * number + 1 for number in range(len(groups))]
    assert bool((parent == 6).all())
    return 'split'


def case_nonblocking(torch, dist, rank):
    """Communicators whose calls return ncclInProgress."""
    return case_sizes(torch, dist, rank)


def case_one_rank(torch, dist, rank):
    """Rank 1 does not load the plugin: rank 0 gets an error that says so, within the plugin's time limit."""
    if rank == 1:
        # NCCL's own sockets may wait for ever.
        threading.Timer(20, os._exit, [0]).start()
    begin = time.monotonic()
    try:
        dist.all_reduce(torch.ones(1 << 20, device='cuda'))
        torch.cuda.synchronize()
    except RuntimeError:
        print(f'NOTICED {time.monotonic() - begin:.1f}', flush=True)
        return 'refused'
    raise AssertionError('the collective worked')


def case_kill(torch, dist, rank):
    """Rank 1 is killed while data is under way: rank 0 gets an error of the network in bounded time.

    Then another process takes its place, and a new communicator works.
    """
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
    return use_new_communicator(torch, dist, rank)


def use_new_communicator(torch, dist, rank):
    """Make a communicator without the default group, which has lost a rank."""
    port = int(os.environ['MASTER_PORT']) + 2
    store = dist.TCPStore('127.0.0.1', port, 2, rank == 0, datetime.timedelta(seconds=40))
    group = dist.ProcessGroupNCCL(store, rank, 2, dist.ProcessGroupNCCL.Options())
    data = torch.full((1 << 22,), float(rank + 1), device='cuda')
    group.allreduce([data]).wait()
    torch.cuda.synchronize()
    assert bool((data == 3).all()), data[:4]
    return 'a new communicator works'


CASES = {name[5:]: function for name, function in list(globals().items()) if name.startswith('case_')}
# case_all_reduce() with each algorithm and protocol.
FORMS = {f'{algorithm}_{protocol}'.lower(): {'NCCL_ALGO': algorithm, 'NCCL_PROTO': protocol}
         for algorithm in ('Ring', 'Tree') for protocol in ('LL', 'Simple')}
CASES |= {form: CASES['all_reduce'] for form in FORMS}
# The order in which the cases begin.
ORDER = ('kill', 'communicators', 'sizes', 'ddp', 'split', 'nonblocking', 'one_rank', 'all_reduce', *FORMS, 'graphs', 'fsdp')
# Cases that also run with NCCL's buffers in GPU memory.
GPU_MEMORY = ('sizes', 'graphs', 'ddp', 'kill')
COMPARED = ('ddp', 'fsdp')
# Cases whose calls do not depend on the fabric run over one.
ONE_FABRIC = ('communicators', 'fsdp', 'split', 'nonblocking', 'one_rank', *FORMS)
# NCCL 2.28.3 to 2.29.7 forget NCCL_NET_PLUGIN with the last communicator: these cases use the plugin by its default name.
UNLOADED = ('communicators', 'kill')
# Cases in which rank 0 does not end its communicators in order, so that the plugin sums up nothing.
NOT_ENDED = ('kill', 'one_rank')
# Least bytes that rank 0 sends: each rank sends all bytes of an all_reduce of two.
LEAST_BYTES = {'ddp': STEPS * MODEL_BYTES, 'fsdp': STEPS * MODEL_BYTES // 2, 'sizes': 4 * 12345677, 'nonblocking': 4 * 12345677,
               'graphs': 200 * 4 << 20, 'communicators': 12 << 20, 'split': 5 * 4 << 20,
               'all_reduce': 256 << 20} | dict.fromkeys(FORMS, 256 << 20)
ENVIRONMENTS = FORMS | {'nonblocking': {'TORCH_NCCL_USE_COMM_NONBLOCKING': '1'}, 'one_rank': {'PEERLANE_ACCEPT_TIMEOUT': '10'}}
# Most seconds of a run, if not 70. PyTorch and NCCL take half a second to make and destroy a communicator.
LIMITS = {'communicators': 150}
# Variables that choose the network of a run.
CHOOSING = ('NCCL_NET_PLUGIN', 'NCCL_NET', 'PEERLANE_FABRIC', 'PEERLANE_GPU_MEMORY')
WITHOUT_PLUGIN = {'NCCL_NET_PLUGIN': 'none', 'NCCL_NET': 'Socket'}


def rank_main(rank, name):
    import torch
    import torch.distributed as dist

    if torch.cuda.device_count() == 1:
        # NCCL refuses two ranks on one GPU of one host.
        os.environ['NCCL_HOSTID'] = f'rank{rank}'
    torch.cuda.set_device(rank % torch.cuda.device_count())
    if name == 'replacement':
        print('RESULT ' + json.dumps(use_new_communicator(torch, dist, rank)), flush=True)
        os._exit(0)
    bound = {'device_id': torch.device('cuda', torch.cuda.current_device())} if name == 'split' else {}
    dist.init_process_group('nccl', rank=rank, world_size=2, **bound)
    result = CASES[name](torch, dist, rank)
    print('RESULT ' + json.dumps(result), flush=True)
    if name in NOT_ENDED:
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
    """Return the outputs of both ranks and of the process that replaces a killed one, and their exit statuses."""
    base = {key: value for key, value in os.environ.items() if key not in CHOOSING}
    base = base | BASE | environment | ENVIRONMENTS.get(name, {})
    replacements, script = [], os.path.abspath(__file__)

    def kill_and_replace(process, file):
        kill_soon(process, file)
        replacements.append(ranks.start_rank(script, 1, ['replacement'], base, port, file + '.replacement'))

    outputs, statuses = ranks.run_pair(script, [name], base, limit, port, folder, kill_and_replace if name == 'kill' else None,
                                       WITHOUT_PLUGIN if name == 'one_rank' else None)
    for process in replacements:
        statuses.append(ranks.end_rank(process, 20))
        with open(f'{folder}/{port}.1.replacement', encoding='utf-8', errors='replace') as log:
            outputs.append(log.read())
    return outputs, statuses


def check_bytes(name, net, output):
    """Raise ValueError unless the plugin's sum shows that the bytes of the collectives went through it."""
    sent = sum(int(number) for number in re.findall(rf'NET/{net} : sent (\d+) bytes', output))
    if sent < LEAST_BYTES[name]:
        raise ValueError(f'the plugin sent {sent} bytes, fewer than the {LEAST_BYTES[name]} of the collectives')


def check_refusal(outputs):
    """Raise ValueError unless the plugin told rank 0 in time why it cannot connect."""
    reasons = ('does not use this release of the plugin', 'PEERLANE_ACCEPT_TIMEOUT')
    if not any(reason in outputs[0] for reason in reasons):
        raise ValueError('the plugin did not say that the other rank lacks it')
    noticed = re.search(r'NOTICED (\S+)', outputs[0])
    if not noticed or float(noticed[1]) > 25:
        raise ValueError('rank 0 noticed too late')


def check_run(name, net, outputs, statuses, limit):
    """Return the results of both ranks, or raise ValueError with the reason."""
    if statuses != ([0, -signal.SIGKILL, 0] if name == 'kill' else [0, 0]):
        raise ValueError(ranks.describe_failure(statuses, limit))
    if name == 'one_rank':
        check_refusal(outputs)
    elif f'via NET/{net.name}/' not in outputs[0] or f'via NET/{net.name}/' not in outputs[-1]:
        raise ValueError(f'NCCL did not use NET/{net.name}')
    if net.environment.get('PEERLANE_GPU_MEMORY') and '/GDRDMA' not in outputs[0]:
        raise ValueError('NCCL did not use GPU memory')
    if name == 'split' and not re.search(r'parent 0x[0-9a-f]+ (split|child)Count', outputs[0]):
        raise ValueError('NCCL split no communicator')
    if net.name == 'Peerlane' and name not in NOT_ENDED:
        check_bytes(name, net.name, outputs[0])
    results = [re.search(r'^RESULT (.*)$', output, re.M)
               for number, output in enumerate(outputs) if number == 0 or name not in NOT_ENDED]
    if not all(results):
        raise ValueError('a rank has no result')
    return [result[1] for result in results]


class Network(typing.NamedTuple):
    """Network of a run: its words in the table, its name for NCCL, and the variables that choose it."""
    label: str
    name: str
    environment: dict


def networks(plugin, name, folder):
    peerlane = {'NCCL_NET_PLUGIN': plugin, 'NCCL_NET': 'Peerlane'}
    if name in UNLOADED:
        link = os.path.join(folder, 'libnccl-net.so')
        if not os.path.lexists(link):
            os.symlink(plugin, link)
        peerlane = {'NCCL_NET': 'Peerlane', 'LD_LIBRARY_PATH': folder + ':' + os.environ.get('LD_LIBRARY_PATH', '')}
    fabrics = [('processes', peerlane)]
    if name not in ONE_FABRIC:
        fabrics.append(('tcp', peerlane | {'PEERLANE_FABRIC': 'tcp'}))
    for label, environment in fabrics:
        yield Network(label, 'Peerlane', environment)
    if name in COMPARED:
        yield Network('NCCL\'s sockets', 'Socket', {'NCCL_NET_PLUGIN': 'none', 'NCCL_NET': 'Socket'})
    for label, environment in fabrics if name in GPU_MEMORY else ():
        yield Network(label + ', GPU memory', 'Peerlane', environment | {'PEERLANE_GPU_MEMORY': '1'})


def run_once(name, net, port, end, folder):
    """Run a case over a network, and print how it ended. Return the results; None if it failed."""
    limit = min(LIMITS.get(name, 70), end - time.monotonic())
    if limit < 10:
        print(f'{name:13} {net.label:21} FAILED: not run, the time is over', flush=True)
        return None
    begin = time.monotonic()
    outputs, statuses = run_pair(name, net.environment, limit, port, folder)
    took = f'{time.monotonic() - begin:5.1f} s'
    try:
        results = check_run(name, net, outputs, statuses, limit)
    except ValueError as error:
        tails = [f'    {rank}: {line}' for rank, output in enumerate(outputs) for line in output.splitlines()[-25:]]
        print('\n'.join([f'{name:13} {net.label:21} FAILED {took}: {error}', *tails]), flush=True)
        return None
    noticed = re.search(r'NOTICED (\S+)', outputs[0])
    print(f'{name:13} {net.label:21} passed {took}' + (f', noticed after {noticed[1]} s' if noticed else ''), flush=True)
    return results


def all_equal(name, results):
    """Return True if a compared case had the same results over all networks; else say so."""
    if name not in COMPARED or len({json.dumps(each) for each in results.values()}) <= 1:
        return True
    print(f'{name:13} FAILED: results differ: {results}', flush=True)
    return False


def run_cases(names, plugin, limit, jobs):
    """Return True if all cases passed over all networks with equal results."""
    end, port, runs = time.monotonic() + limit, PORT, []
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for name in names:
            for net in networks(plugin, name, folder):
                runs.append((name, net.label, pool.submit(run_once, name, net, port, end, folder)))
                port += 4
        results = [(name, label, run.result()) for name, label, run in runs]
    passed = [all_equal(name, {label: found for case, label, found in results if case == name and found}) for name in names]
    return all(passed) and all(found for _, _, found in results)


def main():
    if sys.argv[1:2] == ['--rank']:
        return rank_main(int(sys.argv[2]), sys.argv[3])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--limit', type=int, default=240, metavar='SECONDS')
    parser.add_argument('--only', type=lambda text: text.split(','), default=ORDER, metavar='CASE,...')
    parser.add_argument('--jobs', type=int, default=2, metavar='NUMBER')
    parser.add_argument('plugin', metavar='PLUGIN')
    options = parser.parse_args()
    if unknown := set(options.only) - set(CASES):
        parser.error(f'unknown cases: {", ".join(sorted(unknown))}')
    return 0 if run_cases(options.only, os.path.realpath(options.plugin), options.limit, options.jobs) else 1


if __name__ == '__main__':
    sys.exit(main())
