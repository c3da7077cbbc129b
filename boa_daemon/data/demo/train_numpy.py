"""Least squares in plain numpy, on as many processes as BOA gives it; the width never changes the result.

run: python train_numpy.py --steps 400
"""

import argparse
import os
import signal
import time
from multiprocessing.connection import Client, Listener

import numpy as np

from boa_daemon import job

SHARDS = 8  # Fixed, and summed in order: the same sum at every width.
LEADER = (os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "29400")))
WIDTH, LOCAL = int(os.environ.get("BOA_GPUS", "1")), int(os.environ.get("BOA_GPUS_PER_NODE", "1"))


def gradient(weights, step, shard, pause):
    time.sleep(pause)  # Pretended work, so that more workers really are faster on any machine.
    draw = np.random.default_rng((step, shard))
    x = draw.normal(size=(32, weights.size))
    error = x @ (weights - np.arange(weights.size))
    return np.append(x.T @ error, error @ error) / (SHARDS * len(x))


def help_out():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # The leader is told as well, and closes the door.
    for _ in range(200):
        try:
            with Client(LEADER) as leader:
                while True:
                    rank, *work = leader.recv()
                    leader.send({s: gradient(*work[:2], s, work[2]) for s in range(rank, SHARDS, WIDTH)})
        except ConnectionRefusedError:
            time.sleep(0.05)
        except (EOFError, ConnectionResetError, BrokenPipeError):
            return


def lead(steps, pause, serial, every):
    with Listener(LEADER, backlog=64) as door:
        helpers = [door.accept() for _ in range(WIDTH - 1)]
    found = job.resume()
    weights = np.load(found.path) if found else np.zeros(16)
    for step in range(found.step if found else 0, steps):
        for rank, helper in enumerate(helpers, 1):
            helper.send((rank, weights, step, pause))
        parts = {shard: gradient(weights, step, shard, pause) for shard in range(0, SHARDS, WIDTH)}
        for helper in helpers:
            parts |= helper.recv()
        total = np.sum([parts[shard] for shard in range(SHARDS)], axis=0)
        weights = weights - 0.05 * total[:-1]
        time.sleep(serial[0] if step < steps // 2 else serial[-1])
        print(f"step {step + 1} on {WIDTH} workers: loss {total[-1]:.17g}", flush=True)
        job.report(step + 1, samples=SHARDS * 32, loss=float(total[-1]))
        if job.should_checkpoint(every=every):
            job.save(step + 1, lambda file, weights=weights: np.save(file, weights))
            if job.should_stop():
                return
    job.finish()


if __name__ == "__main__":
    flags = argparse.ArgumentParser()
    flags.add_argument("--steps", type=int, default=400)
    flags.add_argument("--pause", type=float, default=0.0, help="seconds of pretended work per shard")
    flags.add_argument(
        "--serial", type=float, nargs="+", default=[0.0], help="... per step, first and second half"
    )
    flags.add_argument("--every", type=int, default=50, help="steps between checkpoints")
    asked = flags.parse_args()
    is_helper = os.environ.get("BOA_NODE_RANK", "0") != "0"
    if any(os.fork() == 0 for _ in range(LOCAL - 1)) or is_helper:
        help_out()
    else:
        lead(asked.steps, asked.pause, asked.serial, asked.every)
