#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""nccl_socket.py PORT [--json] [--size BYTES,...] [--rounds N]: how fast NCCL sends between two processes on one GPU.

Prints the median rate of 1 GiB, in GB/s; with --json all sizes as a document that `peerlane report` and `peerlane bench
compare` read.
"""
import argparse
import datetime
import json
import os
import platform
import socket
import statistics
import sys
import time

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


def result(size, rates, right):
    """One result, with the names that `peerlane bench --json` has."""
    rate = statistics.median(rates)
    return {
        "tool": "nccl", "operation": "send", "size": size, "fabric": os.environ.get("NCCL_NET", "auto").lower(),
        "memory": "cuda", "peer_memory": "cuda", "bytes_per_second": rate, "operations_per_second": rate / size,
        "runs": rates, "verified": right,
    }


def processor():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), None)
    except OSError:
        return None


def machine(gpus):
    return {
        "host": socket.gethostname(), "kernel": platform.release(), "processor": processor(), "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), "gpus": gpus, "cards": [],
    }


def document(results, version, gpus):
    settings = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("NCCL_")]
    now = datetime.datetime.now(datetime.timezone.utc)
    return {
        "format": 1, "kind": "bench", "version": f"NCCL {version}", "time": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": [*settings, *sys.argv], "machine": machine(gpus), "peer_machine": None, "mode": "bandwidth",
        "both_ways": False, "repeat": len(results[0]["runs"]), "results": results,
    }


def run(rank, arguments):
    import torch
    import torch.distributed as distributed

    # One GPU twice in a communicator is allowed only if its ends seem to be different hosts.
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=arguments.port, NCCL_HOSTID=f"host{rank}")
    torch.cuda.set_device(0)
    distributed.init_process_group("nccl", rank=rank, world_size=2)
    results = [result(size, *measure(rank, size, arguments.rounds)) for size in arguments.sizes]
    if rank == 1:
        assert all(one["verified"] for one in results), "what arrived is not what was sent"
        version = ".".join(map(str, torch.cuda.nccl.version()))
        names = [torch.cuda.get_device_name(0)]
        # The parent's command line: that of a spawned process says nothing.
        sys.argv = arguments.command
        if arguments.json:
            print(json.dumps(document(results, version, names), indent=2), flush=True)
        else:
            print(f"{results[-1]['bytes_per_second'] / 1e9:.2f}", flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    import torch.multiprocessing

    given = parse()
    given.command = ["nccl_socket.py", *sys.argv[1:]]
    torch.multiprocessing.spawn(run, nprocs=2, args=(given,))
