"""The stage passes the settings on to `tick/money/caps.py`; `test_caps.py` tests the caps themselves."""

from __future__ import annotations

from drafts import a_draft, a_plan, gpus

from boa_daemon.testing import a_job, a_state, an_instance_type, rules
from boa_daemon.tick.facts.limits import Caps
from boa_daemon.tick.stages.limits.keep_caps import keep_caps


def test_launches_beyond_a_cap_are_cut_and_other_plans_stay() -> None:
    """Two nodes are planned; the cap is one, two or three instances, or absent."""
    plan = a_plan(
        widths=gpus(a=8), launches={"gpu-x4": 2}, instance_types={"gpu-x4": an_instance_type()},
        waiting={"a": "nodes-to-come"},
    )  # fmt: skip
    state = a_state(a_job("a"))
    for instances, launches in ((1, 1), (2, 2), (3, 2)):
        draft = a_draft(plan=plan, site=rules(caps=Caps(instances=instances)))
        assert keep_caps(state, draft).plan.launches == {"gpu-x4": launches}
    free = a_draft(plan=plan)
    assert keep_caps(state, free) is free
