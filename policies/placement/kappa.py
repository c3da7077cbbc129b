"""The widest job that may be spread over the free GPUs of several nodes; above this width it cannot pay.

LWF-kappa spreads jobs of up to kappa GPUs over free GPUs of nodes in use, and keeps wider jobs together
(`policies.placement.lwf`). If no node in use has room, a job of n GPUs that is kept together opens a node of
g GPUs, of which at worst g - n stay empty. A spread job takes n GPUs that are paid anyway, but it sends
between nodes: an hour of computing takes 1 + s hours, so its GPUs cost n (1 + s). That is less than g only if

    n (1 + s) < g,     s = c / t,   c = a + b M

So above g / (1 + s) spreading costs more than even a new node for this job alone. The job's longer time and
neighbours on its links, which are not counted here, make spreading worse still.

    symbol   here             meaning
    g        gpus_per_node    GPUs of a node
    n        -                GPUs of the job, 2 or more
    s        share            seconds of sending per second of computing, alone (`policies.links.link_share`)

Cost: O(1).
"""

from __future__ import annotations

import math


def widest_to_spread(gpus_per_node: int, share: float) -> int:
    """Return the widest job whose spreading over these nodes may pay; 1 if spreading never pays."""
    return max(1, math.ceil(gpus_per_node / (1.0 + share)) - 1)
