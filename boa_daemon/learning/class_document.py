"""The beliefs about classes as a document: prior, plan and estimate of rate, size and speed-up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from boa_daemon.learning.beliefs import ClassBelief, PlannedFigures
from boa_daemon.learning.link_estimates import LinkEstimate
from boa_daemon.learning.speedups import CurveEstimate
from policies.model import JobClass
from policies.online.estimates import Belief
from policies.speedup import SpeedupCurve

Z95 = 1.959964
"""Standard deviations to either side that contain 95 % of a normal distribution."""


def class_document(
    stated: JobClass,
    belief: ClassBelief | None,
    planned: PlannedFigures | None,
    curves: Iterable[CurveEstimate],
    *,
    is_rate_stated: bool,
    now: float,
    link: LinkEstimate | None = None,
    needs: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Return a class as stated, as planned, and as estimated with 95 % intervals and the data behind them."""
    found = {curve.gpu_type: curve for curve in curves if curve.class_name == stated.name}
    size = stated.size_gpu_hours
    newest = None if belief is None else belief.newest_at
    return {
        "name": stated.name,
        "arrivals_per_hour": {
            "stated": stated.arrivals_per_hour if is_rate_stated else None,
            "planned": stated.arrivals_per_hour if planned is None else planned.per_hour,
            **_estimate(None if belief is None else belief.rate),
            "jobs": 0 if belief is None else belief.arrivals,
        },
        "size_gpu_hours": {
            "stated": size,
            "planned": size if planned is None else size * planned.size_factor,
            **_estimate(None if belief is None else belief.size),
            "ended": 0 if belief is None else belief.ended,
            "cut_off": 0 if belief is None else belief.cut,
        },
        **({} if link is None else {"sending": _sending(link)}),
        **({"needs": dict(needs)} if needs else {}),
        "speedups": [
            row
            for gpu_type, curve in stated.phases[0].speedups.items()
            for row in _speedups(gpu_type, curve, found.get(gpu_type))
        ],
        "newest_at": newest,
        "age_seconds": None if newest is None else max(now - newest, 0.0),
    }


def _sending(link: LinkEstimate) -> dict[str, Any]:
    """Return seconds of sending per second of computing, stated and estimated, and the measured machines."""
    share = link.stated_share
    return {
        "stated": share,
        "estimate": share * link.factor,
        "low": share * link.low,
        "high": share * link.high,
        "machines": list(link.machines),
    }


def _estimate(belief: Belief | None) -> Mapping[str, float | None]:
    """Return an estimate and its interval; None before the first estimate."""
    if belief is None:
        return {"estimate": None, "low": None, "high": None}
    return {"estimate": belief.mean, "low": belief.low, "high": belief.high}


def _speedups(gpu_type: str, curve: SpeedupCurve, found: CurveEstimate | None) -> Iterable[dict[str, Any]]:
    """Yield the speed-up over the narrowest width, at each estimated width or else at powers of two."""
    whole = [int(width) for width in curve.whole_widths()]
    widths = [w for w in whole if w & (w - 1) == 0 or w == whole[-1]]
    if found is not None:
        widths = [width.gpus for width in found.widths]
    narrowest = float(curve.speed_at(whole[0]))
    for gpus in widths:
        one = None if found is None else found.at(gpus)
        spread = None if one is None else Z95 * one.spread
        # The spread of the narrowest width is that of its level; its own speed-up is exactly one.
        spread = 0.0 if spread is not None and gpus == widths[0] else spread
        yield {
            "gpu_type": gpu_type,
            "gpus": gpus,
            "stated": float(curve.speed_at(gpus)) / narrowest,
            "stated_speed": float(curve.speed_at(gpus)),
            "estimate": None if one is None else one.speedup,
            "low": None if one is None or spread is None else one.speedup * math.exp(-spread),
            "high": None if one is None or spread is None else one.speedup * math.exp(spread),
            "samples_per_second": None if one is None else one.samples_per_second,
            "measured_seconds": 0.0 if one is None else one.measured_seconds,
            "measurements": 0 if one is None else one.measurements,
            # Estimated only from other widths.
            "is_extrapolated": one is not None and not one.measurements,
        }
