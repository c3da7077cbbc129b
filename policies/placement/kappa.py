"""How wide a job may be that is spread over leftovers: above this width it cannot pay.

LWF-kappa spreads jobs of up to kappa GPUs over what is free on nodes in use and keeps wider ones together
(`policies.placement.lwf`). Kept together where no node in use has room, a job of n GPUs opens a node of g, of
which g - n stay empty at the worst. Spread, it takes n GPUs that are paid anyway, but sends between nodes:
where it computed for an hour it takes 1 + s hours, so its GPUs cost n (1 + s). That is less than g only if

    n (1 + s) < g,     s = c / t,   c = a + b M

so above g / (1 + s) spreading a job loses money even against a node opened for it alone, before its time is
counted at all and before it meets a neighbour on its links, both of which make spreading worse still.

    symbol   here             meaning
    g        gpus_per_node    GPUs of a node
    n        -                GPUs of the job, 2 or more
    s        share            seconds of sending per second of computing, alone (`policies.links.link_share`)

Cost: O(1).
"""

from __future__ import annotations

import math


def widest_to_spread(gpus_per_node: int, share: float) -> int:
    """Return the widest job on these nodes whose spreading may pay; 1 where that of none may."""
    return max(1, math.ceil(gpus_per_node / (1.0 + share)) - 1)
