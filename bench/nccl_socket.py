#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""nccl_socket.py PORT [--json] [--size BYTES,...] [--rounds N]: how fast NCCL sends between two processes on one GPU.

Prints the median rate of 1 GiB, in GB/s; with --json all sizes as a document that `peerlane report` and `peerlane bench
compare` read.
"""
import argparse
import json
import os
import statistics
import sys
import time

import results

LONG = 1 << 22  # bytes from which a message is measured alone, not among many


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument("port")
    parser.add_argument("--json", action="store_true", help="print a document of results")
    parser.add_argument("--size", default=str(1 << 30), help="sizes in bytes, separated by commas (default: 1 GiB)")
    parser.add_argument("--rounds", type=int, default=7, help="runs of each size, of which the first is not counted")
    arguments = parser.parse_args()
    arguments.sizes = [int(size) for size in arguments.size.split(",")]
    if arguments.rounds < 2 or min(arguments.sizes) < 1:
        parser.error("at least 2 rounds, and sizes from 1 byte on")
    return arguments


def measure(rank, size, rounds):
    """Bytes per second of each round but the first; what arrived is looked at."""
    import torch
    import torch.distributed as distributed

    data = torch.full((size,), rank + 1, dtype=torch.uint8, device="cuda")
    count = 1 if size >= LONG else 64
    rates = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        distributed.barrier()
        start = time.monotonic()
        for _ in range(count):
            if rank == 0:
                distributed.send(data, 1)
            else:
                distributed.recv(data, 0)
        torch.cuda.synchronize()
        rates.append(size * count / (time.monotonic() - start))
    right = rank == 0 or bool((data == 1).all())
    return rates[1:], right


def document(arguments, measured, version, gpus):
    """All results in the terms of results.py: (size, rates, whether what arrived was right)."""
    fabric = os.environ.get("NCCL_NET", "auto").lower()
    settings = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("NCCL_")]
    rows = [results.Measured("nccl", "bandwidth", "send", size, fabric, rates, "cuda", right)
            for size, rates, right in measured]
    return results.document("bandwidth", rows, f"NCCL {version}", [*settings, *arguments.command], gpus)


def run(rank, arguments):
    import torch
    import torch.distributed as distributed

    # One GPU twice in a communicator is allowed only if its ends seem to be different hosts.
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=arguments.port, NCCL_HOSTID=f"host{rank}")
    torch.cuda.set_device(0)
    distributed.init_process_group("nccl", rank=rank, world_size=2)
    measured = [(size, *measure(rank, size, arguments.rounds)) for size in arguments.sizes]
    if rank == 1:
        assert all(right for _, _, right in measured), "what arrived is not what was sent"
        version = ".".join(map(str, torch.cuda.nccl.version()))
        if arguments.json:
            print(json.dumps(document(arguments, measured, version, [torch.cuda.get_device_name(0)]), indent=2),
                  flush=True)
        else:
            print(f"{statistics.median(measured[-1][1]) / 1e9:.2f}", flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    import torch.multiprocessing

    given = parse()
    given.command = ["nccl_socket.py", *sys.argv[1:]]
    torch.multiprocessing.spawn(run, nprocs=2, args=(given,))
