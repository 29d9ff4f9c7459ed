#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""nccl_socket.py PORT: the median rate, in GB/s, at which NCCL sends 1 GiB between two processes on one GPU."""
import os
import statistics
import sys
import time

import torch
import torch.distributed
import torch.multiprocessing

SIZE = 1 << 30
ROUNDS = 7


def run(rank):
    # One GPU twice in a communicator is allowed only if its ends seem to be different hosts.
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[1], NCCL_HOSTID=f"host{rank}")
    torch.cuda.set_device(0)
    torch.distributed.init_process_group("nccl", rank=rank, world_size=2)
    data = torch.full((SIZE,), rank + 1, dtype=torch.uint8, device="cuda")
    rates = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        torch.distributed.barrier()
        start = time.monotonic()
        if rank == 0:
            torch.distributed.send(data, 1)
        else:
            torch.distributed.recv(data, 0)
        torch.cuda.synchronize()
        rates.append(SIZE / (time.monotonic() - start) / 1e9)
    if rank == 1:
        assert int(data[0]) == 1 and int(data[-1]) == 1
        print(f"{statistics.median(rates[1:]):.2f}", flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(run, nprocs=2)
