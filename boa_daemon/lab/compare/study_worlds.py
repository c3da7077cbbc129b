"""Named worlds for studies, which differ from the world that a policy plans for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from boa_daemon.sim.world_settings import Boot, Checkpoints, Faults, Spot, Stock, WorldSettings, WrongBeliefs

CALM = "calm"


def wrong_by_class(names: Sequence[str]) -> WrongBeliefs:
    """Return wrong beliefs: rates and sizes stated at half or twice the truth, alternating by class."""
    return WrongBeliefs(
        rates={name: 2.0 if number % 2 else 0.5 for number, name in enumerate(names)},
        sizes={name: 2.0 if number // 2 % 2 else 0.5 for number, name in enumerate(names)},
    )


WORLDS: Mapping[str, Callable[[Sequence[str]], WorldSettings]] = MappingProxyType(
    {
        CALM: lambda names: WorldSettings(),
        "wrong-beliefs": lambda names: WorldSettings(beliefs=wrong_by_class(names)),
        "optimistic-speedups": lambda names: WorldSettings(beliefs=WrongBeliefs(speedup_exponents={"": 1.3})),
        "slow-boots": lambda names: WorldSettings(boots={"": Boot(median_seconds=420.0, p99_seconds=1200.0)}),
        "bursts": lambda names: WorldSettings(bursts=1.0),
        "droughts": lambda names: WorldSettings(stock={"": Stock(mean_in_hours=3.0, mean_out_hours=0.5)}),
        "failures": lambda names: WorldSettings(
            faults=Faults(
                boot_failure_fraction=0.02, mean_node_failure_hours=100.0, mean_job_failure_hours=20.0
            ),
            checkpoints=Checkpoints(),
        ),
        "price-jumps": lambda names: WorldSettings(
            spot=Spot(price_fraction=0.4, price_volatility=0.8, price_memory_hours=3.0)
        ),
    }
)
"""Functions of the class names. `docs/reference/study-file.md` describes the worlds."""
