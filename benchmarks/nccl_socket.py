#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""nccl_socket.py [PORT] [--json] [--latency] [--gpus A,B] [--size BYTES,...]: rate of NCCL between two processes.

By default both processes use one GPU.  NCCL allows that only if they seem to be on two hosts, so it uses sockets.  With
--gpus 0,1 they use two GPUs, and NCCL chooses the transport.  Prints a line for each size; with --json a document for
`peerlane report` and `peerlane bench compare`.  Exit status 77: PyTorch or a GPU is missing.
"""
import argparse
import datetime
import json
import os
import socket
import statistics
import sys
import time

import results

LONG = 1 << 22      # bytes from which a run measures a single message
MANY = 64           # messages of a run below that size
SKIPPED = 77
TERMINATE_SECONDS = 5   # until processes are killed


def numbers(text):
    return [int(part) for part in text.split(",")]


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument("port", nargs="?", type=int, default=0, help="port of 127.0.0.1 for the rendezvous (default: a free one)")
    parser.add_argument("--json", action="store_true", help="print a document of results")
    parser.add_argument("--latency", action="store_true", help="send one message at a time to and fro; print half the round-trip time")
    parser.add_argument("--gpus", type=numbers, default=[0, 0], metavar="A,B", help="GPUs of sender and receiver (default: 0,0)")
    parser.add_argument("--size", dest="sizes", type=numbers, default=[1 << 30],
                        help="sizes in bytes, separated by commas (default: 1 GiB)")
    parser.add_argument("--rounds", type=int, default=7, help="runs of each size; the first is a warm-up")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for the whole program (default: 120)")
    given = parser.parse_args(arguments)
    if given.rounds < 2 or min(given.sizes) < 1:
        parser.error("--rounds must be at least 2, and sizes at least 1 byte")
    if len(given.gpus) != 2 or min(given.gpus) < 0:
        parser.error("--gpus takes two numbers, such as 0,1")
    if given.timeout <= 0 or not 0 <= given.port < 65536:
        parser.error("--timeout must be above 0, and PORT below 65536")
    return given


def stream(distributed, rank, data, count):
    """Sends messages from rank 0 to rank 1."""
    for _ in range(count):
        if rank == 0:
            distributed.send(data, 1)
        else:
            distributed.recv(data, 0)


def to_and_fro(distributed, rank, data, count):
    """Sends each message to rank 1 and back."""
    for _ in range(count):
        for sender in (0, 1):
            if rank == sender:
                distributed.send(data, 1 - rank)
            else:
                distributed.recv(data, sender)


def measure(torch, distributed, rank, size, given):
    """Returns bytes per second, or microseconds one way, of each round but the first; and True if the content is correct."""
    data = torch.full((size,), rank + 1, dtype=torch.uint8, device="cuda")
    count = MANY if given.latency or size < LONG else 1
    transfer = to_and_fro if given.latency else stream
    values = []
    for _ in range(given.rounds):
        torch.cuda.synchronize()
        distributed.barrier(device_ids=[given.gpus[rank]])
        start = time.monotonic()
        transfer(distributed, rank, data, count)
        torch.cuda.synchronize()
        taken = time.monotonic() - start
        values.append(taken / count / 2 * 1e6 if given.latency else size * count / taken)
    return values[1:], bool((data == 1).all())


def document(given, measured, version, gpus):
    """Returns a document.  `measured` has tuples of size, values, and whether the content is correct."""
    fabric = os.environ.get("NCCL_NET", "auto").lower()
    settings = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("NCCL_")]
    mode = "latency" if given.latency else "bandwidth"
    rows = [results.Measured("nccl", mode, "send", size, fabric, values, "cuda", right)
            for size, values, right in measured]
    return results.document(mode, rows, f"NCCL {version}", [*settings, *given.command], gpus)


def show(given, measured, version, gpus):
    if given.json:
        print(json.dumps(document(given, measured, version, gpus), indent=2), flush=True)
        return
    for size, values, _ in measured:
        middle = statistics.median(values)
        print(f"{size} {middle:.2f} us" if given.latency else f"{size} {middle / 1e9:.2f} GB/s", flush=True)


def run(rank, given):
    import torch
    import torch.distributed as distributed

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(given.port))
    if given.gpus[0] == given.gpus[1]:
        os.environ["NCCL_HOSTID"] = f"host{rank}"
    torch.cuda.set_device(given.gpus[rank])
    distributed.init_process_group("nccl", rank=rank, world_size=2,
                                   timeout=datetime.timedelta(seconds=given.timeout))
    measured = [(size, *measure(torch, distributed, rank, size, given)) for size in given.sizes]
    wrong = [size for size, _, right in measured if not right]
    if rank == 1:
        show(given, measured, ".".join(map(str, torch.cuda.nccl.version())),
             [torch.cuda.get_device_name(gpu) for gpu in dict.fromkeys(given.gpus)])
        if wrong:
            sys.exit(f"nccl_socket: wrong content in messages of {wrong[0]} bytes")
    distributed.destroy_process_group()


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def skip(reason):
    print(f"nccl_socket: skipped: {reason}", file=sys.stderr)
    sys.exit(SKIPPED)


def start(given):
    """Runs both processes, and ends them with this one even if NCCL hangs."""
    import torch.multiprocessing

    deadline = time.monotonic() + given.timeout
    started = torch.multiprocessing.spawn(run, nprocs=2, args=(given,), join=False)
    try:
        while not started.join(timeout=1):
            if time.monotonic() > deadline:
                sys.exit(f"nccl_socket: not finished after {given.timeout:.0f} s (--timeout); NCCL_DEBUG=INFO prints details")
    except torch.multiprocessing.ProcessExitedException as error:
        sys.exit(f"nccl_socket: process {error.error_index} exited with status {error.exit_code}; see its output above")
    except torch.multiprocessing.ProcessRaisedException as error:
        sys.exit(f"nccl_socket: {error}")
    finally:
        for process in started.processes:
            process.terminate()
        for process in started.processes:
            process.join(TERMINATE_SECONDS)
            process.kill()


def main():
    given = parse()
    given.command = ["nccl_socket.py", *sys.argv[1:]]
    try:
        import torch
    except ImportError:
        skip("PyTorch is not installed")
    if torch.cuda.device_count() <= max(given.gpus):
        skip(f"PyTorch sees {torch.cuda.device_count()} GPUs, not GPU {max(given.gpus)}")
    given.port = given.port or free_port()
    start(given)


if __name__ == "__main__":
    main()
