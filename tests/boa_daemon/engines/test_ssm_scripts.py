"""What nodes are sent: packed once, however many are made ready at a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from boa_daemon.engines import ssm_scripts


def test_many_nodes_at_once_get_the_same_bundle() -> None:
    """CPython 3.11 cannot parse in two threads: before, a tick failed with a SystemError now and then."""
    for _ in range(3):
        ssm_scripts._packed.cache_clear()
        with ThreadPoolExecutor(8) as pool:
            assert len(set(pool.map(lambda _: ssm_scripts.bundle(), range(8)))) == 1
