"""Goodput from measurements: by hand, by trying every batch size, and against ElasticFlow's tables."""

import csv
import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from boa_daemon.errors import InputError
from boa_daemon.lab.traces.profiles import (
    POLLUX_FACTS,
    ApplicationFacts,
    Statistics,
    StepTimes,
    goodput,
    read_statistics,
    read_step_times,
)

Write = Callable[[str, str], Path]


def some_times(gpus: int, **batches: tuple[float, float]) -> StepTimes:
    """Return step times from `b8=(step, sync)`."""
    local = {int(name[1:]): value for name, value in batches.items()}
    return StepTimes(
        gpus=gpus,
        nodes=1,
        local_batches=np.array(list(local), float),
        step_seconds=np.array([step for step, _ in local.values()]),
        sync_seconds=np.array([sync for _, sync in local.values()]),
    )


def some_statistics(*batches: int, sqr: float, var: float) -> Statistics:
    """Return one epoch of 100 steps with the same gradient at every batch."""
    return Statistics(
        batches=np.array(batches, float),
        progress_steps=np.array([100.0]),
        grad_sqr=np.full((1, len(batches)), sqr),
        grad_var=np.full((1, len(batches)), var),
    )


def test_goodput_is_gain_over_the_time_of_a_step() -> None:
    """Two GPUs at 8 each: batch 16, gain (3 + 1) / (3 / 2 + 1) = 1.6, in 0.5 s."""
    found = goodput(
        some_times(2, b8=(0.5, 0.1)), some_statistics(8, 16, sqr=1.0, var=3.0), ApplicationFacts()
    )

    assert found == pytest.approx([1.6 / 0.5])


def test_accumulation_repeats_the_part_of_a_step_without_synchronisation() -> None:
    """Two GPUs hold 8 each, so batch 32 takes two passes: 0.5 + (0.5 - 0.1) s."""
    statistics = some_statistics(8, 32, sqr=1.0, var=3.0)

    found = goodput(some_times(2, b8=(0.5, 0.1)), statistics, ApplicationFacts(), batch=32)

    assert found == pytest.approx([(3 + 1) / (3 * 8 / 32 + 1) / (0.5 + (0.5 - 0.1))])


def test_one_gpu_beyond_the_initial_batch_makes_two_passes() -> None:
    """Batch 16 takes two passes of 8, although one GPU can hold it."""
    statistics = some_statistics(8, 16, sqr=1.0, var=3.0)
    times = some_times(1, b8=(0.5, 0.0), b16=(0.6, 0.0))

    assert goodput(times, statistics, ApplicationFacts(), batch=16) == pytest.approx([1.6 / (0.5 + 0.5)])


def test_too_many_gpus_for_the_largest_batch_have_no_goodput() -> None:
    """Nine GPUs with one sample each exceed the largest batch of 8."""
    assert (
        goodput(some_times(9, b1=(0.1, 0.0)), some_statistics(4, 8, sqr=1.0, var=1.0), ApplicationFacts())
        is None
    )


def plain_goodput(directory: Path, facts: ApplicationFacts, gpus: int, epoch: int) -> float:
    """Return the best goodput by trying every batch, with rows read anew and no arrays."""
    runs = {
        int(path.stem.split("-")[1]): list(csv.DictReader(path.read_text().splitlines()))[epoch]
        for path in directory.glob("validation-*.csv")
    }
    sizes = sorted(runs)
    places: dict[str, list[tuple[int, float, float]]] = {}
    for row in csv.DictReader((directory / "placements.csv").read_text().splitlines()):
        digits = row["placement"]
        if sum(map(int, digits)) == gpus and len(digits) == math.ceil(gpus / 4):
            point = (int(row["local_bsz"]), float(row["step_time"]), float(row["sync_time"]))
            places.setdefault(digits, []).append(point)

    def between(x: float, points: list[tuple[float, float]]) -> float:
        (x0, y0), (x1, y1) = next((low, high) for low, high in pairwise(points) if low[0] <= x <= high[0])
        return y0 + (y1 - y0) * (x - x0) / (x1 - x0)

    best = 0.0
    for points in places.values():
        points.sort()
        low, high = points[0][0], min(points[-1][0], facts.max_local_batch or points[-1][0])
        for share in range(1, sizes[-1] // gpus + 1):
            passes = math.ceil(share / high)
            if gpus == 1 and share > sizes[0]:
                passes = max(passes, 2)
            local = math.ceil(share / passes)
            batch = local * passes * gpus
            if not (low <= local <= high and sizes[0] <= batch <= sizes[-1]):
                continue
            step = between(local, [(size, step) for size, step, _ in points])
            sync = between(local, [(size, sync) for size, _, sync in points])
            sqr = between(batch, [(size, float(runs[size]["grad_sqr"])) for size in sizes])
            var = between(batch, [(size, float(runs[size]["grad_var"])) for size in sizes])
            gain = (var + sqr) / (var * sizes[0] / batch + sqr)
            best = max(best, gain / (step + (passes - 1) * (step - sync)))
    return best


@pytest.mark.parametrize("application", ["bert", "cifar10", "deepspeech2", "yolov3"])
@pytest.mark.parametrize("gpus", [1, 3, 6, 16])
def test_goodput_agrees_with_trying_every_batch(data: Path, application: str, gpus: int) -> None:
    """The first and the last epoch are compared."""
    home, facts = data / "pollux/traces" / application, POLLUX_FACTS[application]
    statistics, times = read_statistics(home, facts), read_step_times(home)
    found = np.max([goodput(place, statistics, facts) for place in times[gpus]], axis=0)

    for epoch in (0, len(found) - 1):
        assert found[epoch] == pytest.approx(plain_goodput(home, facts, gpus, epoch), rel=1e-12)


@pytest.mark.parametrize("application", ["bert", "cifar10", "deepspeech2", "imagenet", "yolov3"])
def test_steps_per_second_at_a_fixed_batch_match_elasticflow(data: Path, application: str) -> None:
    """ElasticFlow computed its T4 table from the same measurements.

    Every cell agrees, and the same cells are empty. ElasticFlow lets yolov3 use all measured batches.
    """
    facts = ApplicationFacts(epochs=1)
    home = data / "pollux/traces" / application
    statistics, times = read_statistics(home, facts), read_step_times(home)
    table = (data / "elasticflow/throughputs_T4" / f"{application}.csv").read_text().splitlines()
    for row in csv.DictReader(table):
        batch = int(row["global_batch_size"])
        gain = statistics.gain(np.array([batch]))[0, 0]
        for gpus in (1, 2, 4, 8, 16, 32, 64):
            (place,) = times[gpus]
            found = goodput(place, statistics, facts, batch=batch)
            expected = float(row[str(gpus)])
            assert (found is None) == math.isnan(expected)
            if found is not None:
                assert found[0] / gain == pytest.approx(expected, rel=1e-9)


def test_each_width_uses_the_fewest_nodes(data: Path) -> None:
    """4 GPUs are on one node, 5 on two, 16 on four; 24 were measured on six nodes only."""
    times = read_step_times(data / "pollux/traces/cifar10")

    assert [(place.gpus, place.nodes) for place in times[4]] == [(4, 1)]
    assert [place.nodes for place in times[5]] == [2, 2]
    assert [place.nodes for place in times[16]] == [4]
    assert [place.nodes for place in times[24]] == [6]
    assert sorted(times) == [*range(1, 17), 20, 24, 28, 32, 40, 48, 56, 64]


VALIDATION = "progress,iteration,metric,grad_sqr,grad_var\n10,10,0,1,1\n20,20,0,1,1\n"


def test_the_progress_of_an_epoch_is_the_least_over_all_batches(written: Write) -> None:
    """One batch size makes 9 steps of progress in the second epoch, the other 10."""
    written("validation-8.csv", VALIDATION)
    path = written("validation-16.csv", VALIDATION.replace("20,20", "19,20"))

    found = read_statistics(path.parent, ApplicationFacts())

    assert found.initial_batch == 8
    assert found.epoch_steps.tolist() == [10.0, 9.0]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("other.csv", "x", "no validation-BATCH.csv"),
        ("validation-x.csv", VALIDATION, "the name must be validation-BATCH.csv"),
        ("validation-8.csv", VALIDATION[:60], "cells where the header has 5"),
        ("validation-8.csv", VALIDATION.replace("20,20,0,1,1\n", ""), "1 epochs where a job has 2"),
        ("validation-8.csv", VALIDATION.replace("20,20", "5,20"), "progress must rise"),
        ("validation-8.csv", VALIDATION.replace("20,20,0,1", "20,20,0,nan"), "grad_sqr must be a finite"),
    ],
)
def test_damaged_training_runs_are_refused(written: Write, name: str, text: str, problem: str) -> None:
    """The error names the fault."""
    path = written(name, text)

    with pytest.raises(InputError, match=problem):
        read_statistics(path.parent, ApplicationFacts(epochs=2))


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("1,8,0,0", "step_time must be positive"),
        ("1,8,0.1,0.2", "step_time must be positive and at least sync_time"),
        ("one,8,0.1,0", "placement must be a number"),
        ("1,8.5,0.1,0", "local_bsz must be a whole number"),
    ],
)
def test_damaged_step_times_are_refused(written: Write, row: str, problem: str) -> None:
    """The error names the line."""
    path = written("placements.csv", f"placement,local_bsz,step_time,sync_time\n{row}\n")

    with pytest.raises(InputError, match=rf"placements\.csv:2: {problem}"):
        read_step_times(path.parent)


def test_columns_may_be_in_any_order_and_the_scalability_file_may_be_missing(written: Write) -> None:
    """Sia's files have another order of columns, and some GPU types have no scalability file."""
    path = written(
        "placements-x.csv", "local_bsz,step_time,sync_time,placement\n8,0.1,0.02,1\n4,0.05,0.01,1\n"
    )

    ((only,),) = read_step_times(path.parent, "-x").values()

    assert only.local_batches.tolist() == [4.0, 8.0]
    assert only.step_seconds.tolist() == [0.05, 0.1]
