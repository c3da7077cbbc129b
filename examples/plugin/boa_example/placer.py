"""Last fit: fill the nodes that are listed last first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from policies.answer import Placement
from policies.model import GpuSlot, JobId, Node, Width
from policies.placement.first_fit import FirstFit


class LastFit:
    """First fit in reverse order of nodes."""

    def place(
        self,
        widths: Mapping[JobId, Width],
        *,
        nodes: Sequence[Node],
        held: Mapping[JobId, tuple[GpuSlot, ...]],
    ) -> Placement:
        """Return the GPUs of each job that fits."""
        return FirstFit().place(widths, nodes=list(reversed(nodes)), held=held)


def last_fit(kappa: float) -> LastFit:
    """Return the placer; it takes no notice of kappa."""
    return LastFit()
