"""Hypothesis on shared machines: no deadlines; the same examples every time where CI says so."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "planner",
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("planner")
