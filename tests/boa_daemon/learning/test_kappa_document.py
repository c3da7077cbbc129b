"""What `boa classes` says about kappa: the smallest bound of all classes, and the class it is from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from boa_daemon.learning.kappa_document import kappa_document
from boa_daemon.testing import a_class, an_instance_type
from policies.links.contention import Link
from policies.links.link_share import network_share
from policies.model import AllReduce, JobClass
from policies.speedup import Table

QUIET = AllReduce(message_bytes=1e6, compute_seconds=0.5)
LOUD = AllReduce(message_bytes=526.4e6, compute_seconds=0.090)
NODE = replace(an_instance_type(gpus=4), name="p9.large", link_gigabits_per_second=100.0)


def one(name: str, need: AllReduce | None, *widths: int) -> JobClass:
    """Return a class that runs at these widths."""
    curve = Table(gpus=widths, speeds=tuple(map(float, widths)))
    return replace(a_class(curve=curve, network=need), name=name)


def test_the_class_that_sends_most_sets_the_bound_on_kappa() -> None:
    """The quiet class alone may be spread at 3 GPUs, the loud one at 2."""
    both = [one("quiet", QUIET, 1, 2, 4), one("loud", LOUD, 2, 8)]
    found = kappa_document(both, {"gpu": NODE}, kappa=1.0)

    assert [(row["class"], row["most"]) for row in found["rows"]] == [("quiet", 3), ("loud", 2)]
    assert found["rows"][1]["share"] == network_share(Link.of_gigabits(100.0), LOUD)
    assert (found["set"], found["most"]) == (1.0, 2)
    assert found["why"] == (
        "kappa may be up to 2: spread over several p9.large, jobs of loud send 526 MB for 0.51 s per second "
        "of computing, so wider jobs are cheaper on nodes of their own"
    )


def test_a_kappa_above_the_bound_gives_advice_to_lower_it() -> None:
    """On slow links, no job should be spread."""
    slow = replace(NODE, link_gigabits_per_second=10.0)
    found = kappa_document([one("loud", LOUD, 2)], {"gpu": slow}, kappa=4.0)

    assert found["most"] == 1
    assert found["why"].startswith("jobs are best kept together (kappa 1): ")
    assert found["why"].endswith("It is set to 4: lower [workload] kappa")


@pytest.mark.parametrize("silent", [one("a", None, 1, 2), one("b", LOUD, 1), one("c", LOUD, 1, 8)])
def test_classes_without_a_spread_width_or_network_set_no_bound(silent: JobClass) -> None:
    """One GPU is on one node, eight GPUs need two, and without `network` the traffic is unknown."""
    found = kappa_document([silent], {"gpu": NODE}, kappa=4.0)

    assert (found["most"], found["rows"], found["why"]) == (None, [], "")
