"""Least squares in plain numpy, one process per GPU on all nodes; the width never changes the result.

run: python train_numpy.py --steps 400
"""

import argparse
import time

import numpy as np

from boa_daemon import job

flags = argparse.ArgumentParser()
flags.add_argument("--steps", type=int, default=400)
flags.add_argument("--every", type=int, default=50, help="steps between checkpoints")
flags.add_argument("--pause", type=float, default=0.0, help="seconds of pretended work per shard")
flags.add_argument("--serial", type=float, nargs="+", default=[0.0], help="... per step, in each half")
asked = flags.parse_args()


def gradient(step, shard):
    time.sleep(asked.pause)
    x = np.random.default_rng((step, shard)).normal(size=(32, weights.size))
    error = x @ (weights - np.arange(weights.size))
    return np.append(x.T @ error, error @ error) / 256


weights = np.zeros(16)
state = {"load": lambda file: np.copyto(weights, np.load(file)), "save": lambda file: np.save(file, weights)}
with job.ranks() as ranks:  # Eight shards at any width, and summed in order: the same sum.
    mine = range(ranks.rank * 8 // ranks.width, (ranks.rank + 1) * 8 // ranks.width)
    for step in job.steps(asked.steps, every=asked.every, agree=ranks.agree, **state):
        parts = np.array([gradient(step, shard) for shard in mine])
        total = np.frombuffer(b"".join(ranks.gather(parts.tobytes()))).reshape(8, 17).sum(axis=0)
        weights -= 0.05 * total[:-1]
        time.sleep(asked.serial[0 if step < asked.steps // 2 else -1])
        if ranks.rank == 0:
            print(f"step {step + 1} on {ranks.width} workers: loss {total[-1]:.17g}", flush=True)
        job.report(step + 1, samples=256, loss=float(total[-1]))
