"""A policy for a site, by name: builds the controller for the daemon, a replay or a simulation.

These three differ only in their worlds, which a controller reaches through its ports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from boa_daemon.learning.exploration_value import Exploration
from boa_daemon.learning.width_trials import ExploringAllocator
from boa_daemon.tick.decide.controller import Controller, Ports
from boa_daemon.tick.facts.codec import digest, dumps
from boa_daemon.tick.facts.state import Rules
from policies.answer import Allocation
from policies.model import Job, Money
from policies.online.best_effort import Account
from policies.protocols import Allocator, Placer
from policies.registry import DEFAULT_KAPPA, BuiltPolicy, PolicyOptions, Site, build_policy, find_placer

DOWN_POLICY = "none"
"""The policy of `boa down`: no job holds anything."""


class EmptyAllocator:
    """An allocator that gives no job any GPUs."""

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return no widths."""
        del now, money
        return Allocation(widths={}, reasons={job.id: "`boa down` was ordered" for job in jobs})


@dataclass(frozen=True, kw_only=True)
class PolicyRecord:
    """A policy that can be stored and built again exactly.

    `tries` are the widths that jobs try: (GPUs, the most GPU-seconds that this costs, reason). With
    `best_effort` the policy is what that account pays for (`policies.online.best_effort`).
    """

    name: str
    options: PolicyOptions
    placer: str
    site: Site
    rules: Rules
    tries: Mapping[str, tuple[int, float, str]] = field(default_factory=dict)
    best_effort: Account | None = None
    kappa: float = DEFAULT_KAPPA

    @cached_property
    def built(self) -> BuiltPolicy:
        """The policy, without tries.

        Raises:
            PolicyError: when it does not exist or cannot be planned.
        """
        if self.name == DOWN_POLICY:
            return BuiltPolicy(allocator=EmptyAllocator())
        return build_policy(self.name, self.site, self.options, account=self.best_effort)

    def build(self) -> tuple[Allocator, Placer, Rules]:
        """Return the arguments of `decide`: allocator, placer and rules."""
        allocator = self.built.allocator
        if self.tries:
            tries = {
                job: Exploration(gpus=gpus, gpu_seconds=cost, reason=reason)
                for job, (gpus, cost, reason) in self.tries.items()
            }
            allocator = ExploringAllocator(base=allocator, tries=tries)
        return allocator, find_placer(self.placer, kappa=self.kappa), self.rules.under(self.built)

    def controller(self, ports: Ports) -> Controller:
        """Return the controller of a world."""
        allocator, placer, rules = self.build()
        return Controller(allocator=allocator, placer=placer, rules=rules, ports=ports)

    @property
    def document(self) -> Mapping[str, Any]:
        """The record as a document for the codec."""
        return {
            "policy": self.name,
            "options": self.options,
            "placer": self.placer,
            "site": self.site,
            "rules": self.rules,
            **({"tries": dict(self.tries)} if self.tries else {}),
            **({"best_effort": self.best_effort} if self.best_effort else {}),
            **({"kappa": self.kappa} if self.kappa != DEFAULT_KAPPA else {}),
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> PolicyRecord:
        """Return the record in a document."""
        return cls(
            name=document["policy"],
            options=document["options"],
            placer=document["placer"],
            site=document["site"],
            rules=document["rules"],
            tries=document.get("tries", {}),
            best_effort=document.get("best_effort"),
            kappa=document.get("kappa", DEFAULT_KAPPA),
        )

    @property
    def hash(self) -> str:
        """The short hash of the record."""
        return digest(dumps(self.document))
