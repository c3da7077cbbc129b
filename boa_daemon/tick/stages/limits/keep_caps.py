"""May cut launches and starts, stop jobs and give nodes back: no hard cap may break.

`boa_daemon.tick.money.caps` says what could break a cap, and in which order nodes are given back.
"""

from __future__ import annotations

from boa_daemon.tick.facts.draft import Draft
from boa_daemon.tick.facts.needs import only_with
from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.tick.money.caps import within_caps
from policies.fast_dataclasses import replace


@only_with("limits")
def keep_caps(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft without anything that could break a cap, and with what must end to keep it."""
    plan = within_caps(state, draft.plan, draft.rules)
    return draft if plan is draft.plan else replace(draft, plan=plan)
