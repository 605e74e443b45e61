"""Milliseconds of an all-reduce between processes of this host: PyTorch's Gloo backend, as a user calls it."""

import argparse
import json
import os
import socket
import statistics
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def rank(number, args, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=number, world_size=args.ranks)
    tensor = torch.ones(args.bytes // 4)
    seconds = []
    for call in range(args.warm_up + args.calls):
        tensor.fill_(1.0)
        begin = time.perf_counter()
        dist.all_reduce(tensor)
        if call >= args.warm_up:
            seconds.append(time.perf_counter() - begin)
    assert tensor[-1] == args.ranks
    if number == 0:
        print(json.dumps({"ms": statistics.median(seconds) * 1e3}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--calls", type=int, required=True)
    parser.add_argument("--warm-up", type=int, required=True)
    args = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(rank, args=(args, port), nprocs=args.ranks)
