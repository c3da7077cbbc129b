"""If a cap has no room for all widths, jobs get narrower widths; `test_narrowing.py` tests which."""

from __future__ import annotations

from drafts import PRICES, a_draft, gpus

from boa_daemon.testing import a_job, a_state, rules
from boa_daemon.tick.stages.widths.narrow import narrow


def test_widths_are_narrowed_to_the_room_that_a_cap_leaves() -> None:
    """Two jobs of four GPUs share one node of four; without a cap the draft stays the same."""
    state, policy = a_state(a_job("a"), a_job("b")), {"node_prices": PRICES}
    draft = a_draft(gpus(a=4, b=4), policy=policy)
    assert narrow(state, draft) is draft
    found = narrow(state, a_draft(gpus(a=4, b=4), policy=policy, site=rules(max_nodes=1)))
    assert sum(width.gpus for width in found.allocation.widths.values()) <= 4
