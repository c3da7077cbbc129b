"""An independent reader: what is said of jobs and nodes, checked sentence by sentence against the state."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import ceil

from boa_daemon.tick.decide.decision import Decision
from boa_daemon.tick.explain.runner_up import width_choice
from boa_daemon.tick.facts.actions import LaunchNodes, TerminateNode
from boa_daemon.tick.facts.offers import closed_until
from boa_daemon.tick.facts.room_caps import RoomCap
from boa_daemon.tick.facts.state import JobState, Rules
from policies.model import JobId, Width
from policies.online.node_prices import WholeNodePrices
from policies.online.width_comparison import compare_widths

SET_ASIDE = frozenset(
    {"given-up", "resting", "not-before", "after", "user-day-cap", "team-day-cap", "team-month-cap"}
    | {"team-share", "spot"}
)
OF_THE_CLOUD = frozenset({"out-of-stock", "quota", "denied", "throttled", "bad-request", "no-price"})
OF_MONEY = frozenset({"cap-day", "cap-month", "team-day-cap", "team-month-cap"})
SAME = 1e-9
CENT = 0.006


def untruths(decision: Decision, rules: Rules) -> list[str]:
    """Return what is said in a decision and is not so; each begins with the job or node."""
    reader = _Reader(decision=decision, rules=rules)
    found = []
    for name, job in decision.state.all_jobs.items():
        text = decision.explain(name)
        for check in (
            reader.first_sentence(name, job, text),
            reader.widths(name, text),
            reader.places(name, text),
            reader.subjects(name, text),
            reader.money(name, text),
            reader.caps(name, text),
            reader.lending(name, text),
            reader.wait(name, text),
            reader.choice(name),
        ):
            found += [f"{name}: {what} in: {text}" for what in check]
    return [*found, *reader.orders()]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    decision: Decision
    rules: Rules

    def first_sentence(self, name: JobId, job: JobState, text: str) -> Iterator[str]:
        """The first sentence says whether the job runs, moves, stops, starts or waits, and at which width."""
        plan, who = self.decision.plan, f"Job {name}"
        width = plan.jobs.widths.get(name)
        if name in plan.jobs.ends:
            says = f"{who} hangs and is ended"
        elif job.slots and job.is_stopping:
            says = f"{who} is stopping"
        elif job.slots and name in plan.jobs.stops:
            says = f"{who} stops: "
        elif job.slots and name in plan.jobs.slots:
            says = f"{who} moves from {job.job.width} to {width}"
        elif job.slots:
            says = f"{who} runs on {job.job.width}"
        elif name in plan.jobs.given_up or plan.jobs.waiting.get(name) == "given-up":
            says = f"{who} is over"
        elif name in plan.jobs.slots:
            says = f"{who} starts now on {width}"
            if width is None or len(plan.jobs.slots[name]) != width.gpus:
                yield "starts on another width than planned"
        else:
            says = f"{who} has to wait"
        if not text.startswith(says):
            yield f"not {says!r}"

    def widths(self, name: JobId, text: str) -> Iterator[str]:
        """The planned width is the one of the plan, and free GPUs are those that stay."""
        state, plan = self.decision.state, self.decision.plan
        for said in re.findall(r"Planned are (\d+ x \S+?):", text):
            if said != str(plan.jobs.widths.get(name)):
                yield f"planned are {plan.jobs.widths.get(name)}"
        width = plan.jobs.widths.get(name)
        for whole, free in re.findall(r"Of its (\d+) GPUs (?:it holds \d+, and )?(\d+) (?:more )?are", text):
            leaving = {*plan.releases, *plan.forced}
            stays = [
                node.free_gpus
                for node in state.nodes.values()
                if width is not None and node.instance_type.gpu_type == width.gpu_type
                if node.phase == "ready" and node.ends_by is None and node.id not in leaving
            ]
            if width is None or int(whole) != width.gpus:
                yield f"not {whole} GPUs"
            elif int(free) not in {sum(stays), min(sum(stays), width.gpus)}:
                yield f"{sum(stays)} are free"

    def places(self, name: JobId, text: str) -> Iterator[str]:
        """The place in the queue, how long it is, and who comes before."""
        queue = self._queue()
        for place, count in re.findall(r"number (\d+) of (\d+) in the queue", text):
            if name not in queue or (int(place), int(count)) != (queue.index(name) + 1, len(queue)):
                yield f"the queue is {queue}"
        for said in re.findall(r"in the queue: ([^:.]*?) comes? before it", text):
            before = set(re.findall(r"\bj\d+\b", said))
            if not before <= set(queue[: queue.index(name)]):
                yield f"{before} do not all come before it"
        if "Jobs are served by arrival;" in text and self.decision.plan.order:
            yield "the order is not that of arrival"

    def _queue(self) -> list[JobId]:
        """Return the waiting jobs in the order of service."""
        state, plan = self.decision.state, self.decision.plan
        first = [name for name in state.claims if name in state.jobs and not state.jobs[name].job.width]
        return [
            name
            for name in dict.fromkeys((*first, *plan.order, *state.jobs))
            if name in state.jobs
            and not state.jobs[name].slots
            and name not in {*plan.jobs.slots, *plan.jobs.given_up}
            and plan.jobs.waiting.get(name) not in SET_ASIDE
        ]

    @staticmethod
    def subjects(name: JobId, text: str) -> Iterator[str]:
        """No sentence on another job, node or order to rent stands for one on this job."""
        for other in re.findall(r"\b(?:job|node) (\w+): ", text):
            if other != name:
                yield f"a note on {other}"
        notes = re.findall(r"\$[\d.,]+ is spent[^;]*;", text.partition(". ")[2])
        if len(notes) > len(set(notes)):
            yield "the same note twice"

    def money(self, name: JobId, text: str) -> Iterator[str]:
        """Money in words: what is spent, whether ends of jobs make room, and what accrued pays for now."""
        usd = r"\$([\d,]+\.\d\d)"
        for cap, spent, rest in re.findall(rf"the cap is {usd}[^)]*\): {usd} is spent(.*?)(?:\. |\.$)", text):
            most, paid = float(cap.replace(",", "")), float(spent.replace(",", ""))
            takes = re.search(rf"it takes {usd}", rest)
            needed = float(takes[1].replace(",", "")) if takes else 0.0
            if "or sooner" in rest and paid + needed > most + CENT:
                yield "no end of a job makes room"
            if "there is room" in rest and needed > most + CENT:
                yield "there is never room"
        accrual = self.decision.plan.accrual
        if accrual is None or self.decision.plan.jobs.waiting.get(name) != "budget":
            return
        burn = sum(
            node.usd_per_hour
            for node in self.decision.state.nodes.values()
            if node.phase in ("ready", "requested") and node.ends_by is None
        )
        most = accrual.per_hour + max(accrual.balance, 0.0) / accrual.spread_hours
        for said in re.findall(r"now pays for \$(\d+\.\d\d)", text):
            if abs(float(said) - most) > CENT:
                yield f"the budget pays for {most}"
        for said in re.findall(r"\$(\d+\.\d\d) are rented", text):
            if abs(float(said) - burn) > CENT:
                yield f"{burn} are rented"

    def caps(self, name: JobId, text: str) -> Iterator[str]:
        """A cap is said as it was set, has no room where it says so, and holds nobody whose nodes come."""
        caps, plan = self.rules.caps, self.decision.plan
        usd = r"\$([\d,]+\.\d\d)"
        for period, said, left in re.findall(
            rf"the cap on dollars per (day|month) leaves no room for it \(the cap is {usd}(.*?);", text
        ):
            of_rules = None if caps is None else caps.usd_per_day if period == "day" else caps.usd_per_month
            if of_rules is None or abs(float(said.replace(",", "")) - of_rules) > CENT:
                yield f"the cap is {of_rules}"
            rest, takes = re.search(rf"{usd} is left", left), re.search(rf"takes {usd}", left)
            if rest is None or takes is None or not plan.launches:
                continue
            if float(takes[1].replace(",", "")) <= float(rest[1].replace(",", "")) - CENT:
                yield "there is room for it"
        queue, width = self._queue(), plan.jobs.widths.get(name)
        if plan.jobs.waiting.get(name) not in ("cap-day", "cap-month", "cap-hour") or width is None:
            return
        kind = self.rules.instance_types[width.gpu_type]
        if queue[:1] == [name] and plan.launches.get(kind.name, 0) * kind.gpus >= width.gpus:
            yield "its nodes are asked for"

    def lending(self, name: JobId, text: str) -> Iterator[str]:
        """A job that is to hold nothing is not told of free GPUs beside it."""
        job, jobs = self.decision.state.all_jobs[name], self.decision.plan.jobs
        holds = name in jobs.slots or (job.slots and name not in jobs.stops and not job.is_stopping)
        if "free GPUs beside it" in text and not holds:
            yield "no GPUs are beside it"
        if re.search(r"(runs on \d+ x \S+): it \1", text):
            yield "says it twice"

    def wait(self, name: JobId, text: str) -> Iterator[str]:
        """What a job waits for is there: nodes to come, GPUs to fall free, a closed offer."""
        state, plan = self.decision.state, self.decision.plan
        code, width = plan.jobs.waiting.get(name), plan.jobs.widths.get(name)
        if "met with probability" in text and code in OF_MONEY and "limits apart" not in text:
            yield "the date does not know of the cap"
        if code == "gpus-to-fall-free" and not any(job.slots for job in state.jobs.values()):
            yield "nothing falls free"
        if width is None:
            return
        kind = self.rules.instance_types[width.gpu_type]
        if code == "nodes-to-come":
            coming = any(
                node.phase == "requested" and node.instance_type.name == kind.name
                for node in state.nodes.values()
            )
            if not coming and not plan.launches.get(kind.name):
                yield "no node is to come"
        if code in OF_THE_CLOUD:
            # A job may count on the nodes of wider ones.
            sizes = {
                ceil(one.gpus / kind.gpus) for one in (Width(kind.gpu_type, 1), *plan.jobs.widths.values())
            }
            closed = [
                closed_until(kind.name, state.offers, state.cooldowns, now=state.now, together=size)
                for size in sizes
            ]
            if not any(closed):
                yield "its offers are open"

    def choice(self, name: JobId) -> Iterator[str]:
        """A width is called the best only where no possible one has a lower figure; the next is possible."""
        state, plan = self.decision.state, self.decision.plan
        found, prices = width_choice(state, plan, name) if name in state.jobs else None, plan.node_prices
        if found is None or not isinstance(prices, WholeNodePrices):
            return
        job = state.jobs[name].job
        costs = {}
        for width in prices.columns[job.class_name].widths:
            one = compare_widths([job], {name: width}, prices.columns, multiplier=prices.multiplier)
            if name in one:
                costs[str(width)] = (one[name].cost, self._is_possible(name, width))
        own = costs[found.chosen][0]
        best = min((cost for cost, is_possible in costs.values() if is_possible), default=own)
        if found.chosen != str(plan.jobs.widths[name]):
            yield f"chosen is {plan.jobs.widths[name]}"
        if found.is_best != (best >= own * (1.0 - SAME)):
            yield f"the best possible width costs {best}, the chosen one {own}"
        if not costs[found.runner_up][1] and not found.forbidden_by:
            yield f"the runner-up {found.runner_up} is impossible"
        if found.wished and costs[found.wished][1]:
            yield f"{found.wished} is possible"

    def _is_possible(self, name: JobId, width: Width) -> bool:
        """Return whether a job could have a width beside the jobs that have room."""
        state, plan = self.decision.state, self.decision.plan
        seen, own = state.jobs[name], plan.jobs.widths[name]
        if seen.is_rigid and seen.slots and width != seen.job.width:
            return False
        if width.gpu_type == own.gpu_type and width.gpus <= own.gpus:
            return True
        others = [plan.jobs.widths[other] for other in self._with_room() if other != name]
        return all(_fits(cap, [*others, width]) for cap in plan.room_caps if width.gpu_type in cap.node_sizes)

    def _with_room(self) -> list[JobId]:
        """Return the jobs that hold GPUs or start, and those after them that fit under every limit."""
        state, plan = self.decision.state, self.decision.plan
        names = [name for name in dict.fromkeys((*plan.order, *plan.jobs.widths)) if name in plan.jobs.widths]
        found = [
            name
            for name in names
            if (name in state.jobs and state.jobs[name].slots) or name in plan.jobs.slots
        ]
        for name in names:
            if name in found or name not in state.jobs:
                continue
            widths = [plan.jobs.widths[other] for other in (*found, name)]
            caps = (cap for cap in plan.room_caps if plan.jobs.widths[name].gpu_type in cap.node_sizes)
            if not all(_fits(cap, widths) for cap in caps):
                break
            found.append(name)
        return found

    def orders(self) -> Iterator[str]:
        """An idle node is idle, and a launch counts the jobs that it is for."""
        state, plan = self.decision.state, self.decision.plan
        for order in self.decision.actions:
            if isinstance(order, TerminateNode):
                is_idle = all(job is None for job in state.nodes[order.node].gpus)
                if order.reason.startswith("idle") and not is_idle:
                    yield f"{order.node}: {order.reason}, but has jobs"
            if isinstance(order, LaunchNodes):
                widths = [plan.jobs.widths[job] for job in plan.jobs.waiting if job in plan.jobs.widths]
                mine = [width for width in widths if width.gpu_type == order.instance_type.gpu_type]
                said = re.match(r"(\d+) jobs? waits? for (\d+) GPU", order.reason)
                counts = (len(mine), sum(width.gpus for width in mine))
                if said and (int(said[1]), int(said[2])) != counts:
                    yield f"{order.instance_type.name}: {order.reason}, but {counts}"


def _fits(cap: RoomCap, widths: Iterable[Width]) -> bool:
    """Return whether whole nodes for the widths are within a cap."""
    counts: Counter[str] = Counter()
    for width in widths:
        counts[width.gpu_type] += width.gpus
    taken = sum(
        size * ceil(counts[kind] / cap.gpus[kind]) for kind, size in cap.node_sizes.items() if counts[kind]
    )
    return taken <= cap.size * (1.0 + SAME)
