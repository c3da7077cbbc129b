"""What a tick looks at: idle holds under a policy, money of users, wake-ups, and defaults."""

from __future__ import annotations

from dataclasses import replace

import pytest
from unnamed import by_place, hidden, hurried, unnamed

import boa_daemon.tick
from boa_daemon.testing import a_job, a_node, a_state, an_instance_type, rules, some_slots
from boa_daemon.tick.facts.draft import Changes
from boa_daemon.tick.facts.pending_ends import PendingEnds
from boa_daemon.tick.facts.plan import Plan, PlannedJobs
from boa_daemon.tick.facts.rests import Refusal
from boa_daemon.tick.facts.retries import ANY_RETRIES, Failure, Retries
from boa_daemon.tick.facts.state import Due, JobState, JobTerms, NodeState, Rules, UserMoney, WarmPool
from policies.answer import Allocation
from policies.site import BuiltPolicy


class Nobody:
    """An allocator that is never called."""

    def allocate(self, jobs: object, *, now: float, money: object = None) -> Allocation:
        """Return no widths."""
        return Allocation(widths={})


@pytest.mark.parametrize(
    ("by_policy", "longest", "held"),
    [(None, None, 60.0), (None, 10.0, 60.0), (90.0, None, 90.0), (90.0, 40.0, 40.0), (30.0, 40.0, 30.0)],
)
def test_the_policys_idle_hold_is_limited_by_the_sites_longest_hold(
    by_policy: float | None, longest: float | None, held: float
) -> None:
    """Without a hold of the policy the site's own hold counts."""
    built = BuiltPolicy(allocator=Nobody(), idle_hold_seconds=by_policy, round_seconds=7.0)
    found = rules(longest_hold_seconds=longest).under(built)
    assert (found.idle_hold_seconds, found.round_seconds) == (held, 7.0)


def test_a_job_with_gpus_runs_and_its_node_is_not_idle() -> None:
    """The node has three free GPUs left."""
    state = a_state(
        a_job("a"), a_job("b"), nodes=[a_node("n1"), a_node("n2")], held={"a": some_slots("n1", 0)}
    )
    assert {name: job.is_running for name, job in state.jobs.items()} == {"a": True, "b": False}
    assert {name: (node.is_idle, node.free_gpus) for name, node in state.nodes.items()} == {
        "n1": (False, 3),
        "n2": (True, 4),
    }
    assert state.usd_per_hour == 8.0


def test_the_money_of_a_user_is_spent_when_the_cap_is_reached() -> None:
    """The cap is 5 USD: 4.99 is not spent, and 5 is."""
    assert [UserMoney(cap_usd=5.0, spent_usd=spent).is_spent for spent in (4.99, 5.0, 5.01)] == [
        False,
        True,
        True,
    ]


def test_a_plan_wakes_up_at_the_earliest_of_its_times() -> None:
    """None changes nothing."""
    plan = Plan()
    assert plan.looked_at_by(None) is plan
    assert plan.looked_at_by(3.0, None, 2.0).wake_at == 2.0
    assert plan.looked_at_by(3.0).looked_at_by(5.0).wake_at == 3.0


def test_nodes_jobs_pools_and_rules_have_these_defaults() -> None:
    """A node is on demand and listed; a pool's start takes 60 s, and its disk costs 0.0219 USD per hour."""
    node = NodeState(
        id="n", instance_type=an_instance_type(), phase="ready", launched_at=0.0, gpus=(None,) * 4
    )
    assert (node.launched_by, node.zone, node.market, node.is_listed) == ("", "", "on-demand", True)
    assert (node.idle_since, node.ended_at, node.ends_by) == (None, None, None)
    assert (node.prices, node.extras, node.tiers) == ((), (), ())
    job = JobState(job=a_job("a"))
    assert (job.slots, job.generation, job.lost_steps, job.is_stopping, job.is_rigid) == (
        (),
        0,
        0,
        False,
        False,
    )
    terms = job.terms
    assert (terms.failures, terms.grace_seconds, terms.user, terms.team, terms.last_end) == (
        0,
        0.0,
        "",
        "",
        "",
    )
    assert (terms.rests_until, terms.verdict, terms.due, terms.money_ends_at) == (None, None, None, None)
    due = Due(at=1.0, hours=())
    assert (due.sizes, due.startup_hours) == (((1.0, 1.0),), 0.0)
    pool = WarmPool(nodes=1)
    assert (pool.start_seconds, pool.disk_usd_per_hour) == (60.0, 0.0219)
    site = Rules(instance_types={})
    assert (site.idle_hold_seconds, site.orders_links, site.max_nodes, site.round_seconds) == (
        60.0,
        False,
        None,
        None,
    )
    assert (site.fixed, site.caps, site.steady, site.pace, site.warm_pool) == ((), None, None, None, None)
    state = a_state()
    spent = (
        state.settled_micro_dollars,
        state.settled_today_micro_dollars,
        state.settled_month_micro_dollars,
        state.standing_charged_until,
    )
    assert spent == (0, 0, 0, 0.0)
    assert (state.books_opened_at, state.memory, state.gate) == (None, None, None)


def test_defaults_that_are_not_empty_are_listed_here() -> None:
    """In all of `boa_daemon.tick`, every other default is zero, empty, False or None."""
    found = unnamed(boa_daemon.tick)
    nothing = {"Draft.allocation": Allocation(widths={}), "Draft.changes": Changes()}
    nothing |= {"Draft.plan": Plan(), "Plan.jobs": PlannedJobs(), "JobState.terms": JobTerms()}
    assert {name: found.pop(name) for name in nothing} == nothing
    assert isinstance(found.pop("Ports.ends"), PendingEnds)
    assert found.pop("JobTerms.retries") == Retries() == ANY_RETRIES
    assert hidden(boa_daemon.tick) == {"Decision.basis": "repr compare"}
    assert by_place(boa_daemon.tick) == []
    assert found == {
        "Caps.tick_seconds": 30.0,
        "Caps.checkpoint_seconds": 90.0,
        "Caps.refused_seconds": 60.0,
        "Caps.shutdown_seconds": 30.0,
        "Caps.unseen_seconds": 300.0,
        "Caps.least_run_seconds": 900.0,
        "Controller.unseen_seconds": 300.0,
        "Cooldown.kind": "no-capacity",
        "Cooldown.times": 1,
        "Due.sizes": ((1.0, 1.0),),
        "JobSpec.gate": True,
        "JobSpec.log_bytes": 64 * 2**20,
        "JobSpec.stop_grace_seconds": 60.0,
        "JobSpec.weight": 1.0,
        "JobSpec.workdir": ".",
        "LaunchNodes.count": 1,
        "LogChunk.nodes": 1,
        "NodeState.is_listed": True,
        "NodeState.market": "on-demand",
        "Offer.market": "on-demand",
        "Refused.kind": "busy",
        "Rest.factor": 1.0,
        "Retries.most_failures": 4,
        "Retries.window_seconds": 30 * 86400.0,
        "Rules.idle_hold_seconds": 60.0,
        "StartJob.places_per_gpu": 1,
        "Steady.launch_seconds": 900.0,
        "Steady.loop_seconds": 3600.0,
        "Steady.loop_times": 8,
        "Steady.minimum_hold_seconds": 300.0,
        "Steady.moves_per_hour": 200,
        "Steady.moves_per_hour_of_a_job": 4,
        "TeamMoney.half_life_seconds": 86400.0,
        "WarmPool.disk_usd_per_hour": 0.0219,
        "WarmPool.start_seconds": 60.0,
    }


def test_fast_dataclasses_and_bounded_caches_are_listed_here() -> None:
    """In all of `boa_daemon.tick` these classes use the fast constructor, and these caches have a size."""
    assert hurried(boa_daemon.tick) == dict.fromkeys(
        [
            "Act",
            "Changes",
            "Charge",
            "ClusterState",
            "Decision",
            "Draft",
            "EndGeneration",
            "GiveUpJob",
            "JobState",
            "LaunchNodes",
            "Ledger",
            "NodeState",
            "Plan",
            "PlannedJob",
            "PlannedJobs",
            "StartJob",
            "StopJob",
            "TerminateNode",
            "_Demand",
            "_Unserved",
        ],
        "quick",
    ) | {"any_offer": 64, "_month_of_day": 64, "_why_idle": 64, "_why_start": 4096, "scope_of": 4096}


def test_a_job_rests_after_failures_and_refusals_until_the_later_of_both() -> None:
    """It rests for 5 s after a failure at 100 and a refusal at 200; a job that is given up does not rest."""
    failed, refused = (Failure(at=100.0, step=0),), Refusal(since=200.0, at=200.0)
    assert JobTerms().rests_until is None
    assert JobTerms(failed=failed).rests_until == 105.0
    assert JobTerms(refused=refused).rests_until == 205.0
    assert JobTerms(failed=failed, refused=refused).rests_until == 205.0
    over = JobTerms(failed=failed, retries=Retries(most_failures=1))
    assert over.rests_until == 0.0


def test_nodes_with_gaps_and_passing_nodes_are_computed_for_each_state() -> None:
    """This also holds if two states share a mapping that has changed in between."""
    full = replace(a_node("full"), gpus=("a",) * 4)
    nodes = {"full": full, "half": replace(full, id="half", gpus=("a", None, None, "b"))}
    state = a_state(nodes=list(nodes.values()))
    assert list(state.nodes_with_gaps) == ["half"]
    assert state.with_gaps_or(set()) is state.with_gaps_or({"half"}) is state.nodes_with_gaps
    assert state.with_gaps_or({"full"}) is state.nodes
    assert state.passing_nodes == []
    state = replace(state, nodes=nodes)
    assert list(state.nodes_with_gaps) == ["half"]
    nodes["half"] = replace(full, id="half", ends_by=9.0)
    nodes["going"] = replace(full, id="going", phase="terminating")
    assert list(replace(state).nodes_with_gaps) == []
    assert [node.id for node in replace(state).passing_nodes] == ["half", "going"]


def test_bound_jobs_are_those_with_terms_and_rigid_jobs() -> None:
    """Unplanned jobs with terms are judged, but not bound."""
    jobs = {name: JobState(job=a_job(name)) for name in ("plain", "terms", "rigid", "lost", "odd")}
    jobs["terms"] = replace(jobs["terms"], terms=JobTerms(user="eve"))
    jobs["rigid"] = replace(jobs["rigid"], is_rigid=True)
    jobs["odd"] = replace(jobs["odd"], terms=JobTerms(user="eve"))
    known = {name: jobs[name] for name in ("plain", "terms", "rigid")}
    state = replace(a_state(), jobs=known)
    assert state.all_jobs is known
    assert set(state.bound_jobs) == set(state.judged_jobs) == {"terms", "rigid"}
    more = replace(state, unplanned={name: jobs[name] for name in ("lost", "odd")})
    assert set(more.all_jobs) == set(jobs)
    assert set(more.bound_jobs) == {"terms", "rigid"}
    assert set(more.judged_jobs) == {"terms", "rigid", "odd"}
