"""A small network under JAX with Orbax: one process, the batch spread over all GPUs of its node.

run: python train_jax.py --steps 60
"""

import argparse
import time

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from boa_daemon import job
from boa_daemon.job.jax import OrbaxState, mesh

flags = argparse.ArgumentParser()
flags.add_argument("--steps", type=int, default=60)
flags.add_argument("--every", type=int, default=20, help="steps between checkpoints")
flags.add_argument("--pause", type=float, default=0.0, help="seconds of pretended work per step")
asked = flags.parse_args()
spread, same = (NamedSharding(mesh("data"), PartitionSpec(*axes)) for axes in (["data"], []))
jax.config.update("jax_enable_x64", True)


@jax.jit
def train(weights, x):
    def loss_of(net):
        return jnp.mean((jnp.tanh(x @ net["in"]) @ net["out"] - jnp.sin(x).sum(1)) ** 2)

    loss, slopes = jax.value_and_grad(loss_of)(weights)
    return jax.tree.map(lambda one, slope: one - 0.01 * slope, weights, slopes), loss


weights = {"in": jnp.sin(jnp.arange(1024.0)).reshape(16, 64), "out": jnp.cos(jnp.arange(64.0))}
state = OrbaxState(jax.device_put(weights, same))
for step in job.steps(asked.steps, every=asked.every, **state.hooks):
    time.sleep(asked.pause)
    x = jax.device_put(jax.random.normal(jax.random.key(step), (64, 16)), spread)
    state.tree, loss = train(state.tree, x)
    job.report(step + 1, samples=64, loss=float(loss))
