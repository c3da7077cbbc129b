"""What even money costs in waiting: the loss that is foretold beside the loss that comes.

    boa trace import elasticflow/cluster10.csv --from itp --profiles elasticflow --to-hours 840 --out DIR
    python benchmarks/foretold.py DIR [DIR ...] [--factor 1.5] [--promise month:0.02 quarter:0.1]
    python benchmarks/foretold.py --generated "1/16 bursts" [--seeds 2]

Each line is a load under a promise, told the truth. `foretold` is the loss that `boa plan` and `boa simulate`
show before it is paid (`policies.online.foretold`). `came` is the mean JCT of `boa-paced` over that of the
fixed plan `boa` tuned to the same money, less one, on whole nodes with boots. `ratio` is (1 + the larger)
over (1 + the smaller), as the jobs feel it, and `factor` the larger loss over the smaller one where both are
above 2 %: below that they differ by what whole nodes do. `equal jobs` would spread the load of a period as
much as its jobs do; where they are too few for the tolerance the foretold loss is a range, and the loss that
came is within it, or outside by more than 2 %. The first run of the fixed plan serves all promises.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import replace
from pathlib import Path

from weeks import Run, at_spend, generated, least_of, read, run_of

from boa_daemon.sim.wiring import SimulationSettings, prepare
from boa_daemon.traces.rates import work_of
from policies.model import Budget
from policies.registry import find_policy, parse_options

SMALL = 0.02
PROMISES = ("month:0.02", "month:0.1", "quarter:0.1")
HEAD = (
    f"{'load':34s} {'promise':12s} {'jobs':>5s}  {'foretold':>8s} {'came':>7s}  {'ratio':>5s} {'factor':>6s}"
    "  equal jobs, range"
)


def compare(name: str, settings: SimulationSettings, promise: str, plan: Run) -> tuple[float, float]:
    """Print one line; return the loss foretold and the loss that came."""
    period, tolerance = promise.split(":")
    options = parse_options(find_policy("boa-paced"), {"period": period, "tolerance": tolerance})
    run = prepare(replace(settings, policy="boa-paced", options=options))
    paced = run.finish()
    jct, _ = at_spend(replace(settings, policy="boa"), paced.mean_usd_per_hour, run_of, plan)
    came, told = paced.mean_jct_hours / jct - 1.0, paced.pacing_loss_fraction
    told = math.nan if told is None else told
    small, large = sorted((max(told, 0.0), max(came, 0.0)))
    factor = f"{large / small:6.2f}" if small > SMALL else ""
    assert run.policy.pace is not None
    loss = run.policy.pace.foretell(work_of(settings.trace, settings.problem.classes))
    spread = "" if loss is None else f"{loss.jobs:.0f}"
    if loss is not None and loss.is_coarse:
        is_within = loss.least - SMALL <= came <= loss.most + SMALL
        spread += f", {loss.least:.1%} to {loss.most:.1%}: {'within' if is_within else 'outside'}"
    print(
        f"{name:34s} {promise:12s} {paced.jobs:5d}  {told:8.1%} {came:7.1%}"
        f"  {(1.0 + large) / (1.0 + small):5.2f} {factor:6s}  {spread}",
        flush=True,
    )
    return told, came


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--factor", type=float, default=1.5, help="the budget over the least that runs all")
    parser.add_argument("--promise", nargs="*", default=PROMISES, metavar="PERIOD:TOLERANCE")
    parser.add_argument("--generated", default="", help="loads of benchmarks/weeks.py that begin so")
    parser.add_argument("--seeds", type=int, default=2)
    words = parser.parse_args()
    loads = [(folder.name, read(folder)) for folder in words.folders]
    if words.generated:
        found = generated(range(1, words.seeds + 1))
        loads += [(name, load()) for name, load in found if name.startswith(words.generated)]
    print(HEAD)
    for name, settings in loads:
        asked = replace(settings, budget=Budget(amount=words.factor * least_of(settings)))
        plan = run_of(replace(asked, policy="boa"))
        for promise in words.promise:
            compare(name, asked, promise, plan)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    main()
