"""Contract tests for plug-ins: what BOA relies on in the code that other packages add.

Each function takes the object of an entry point, exercises it as the program does, and raises AssertionError
with a sentence if the contract is broken. `policies.plugins` lists the entry points, and `examples/plugin` is
a package that adds one of each and tests them with these functions.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from boa_daemon.inputs.problem_file import load_problem
from boa_daemon.testing import a_class as make_class
from boa_daemon.testing import a_job as make_job
from boa_daemon.testing import a_node, a_problem, an_instance_type
from boa_daemon.tick.facts.actions import LaunchNodes, StartJob, TerminateNode
from boa_daemon.tick.facts.job_spec import JobSpec
from boa_daemon.tick.facts.ports import Accepted, Launched, Provider, Runner, RunReport
from boa_daemon.traces.reader import read_trace
from boa_daemon.traces.workload import Options, Workload
from boa_daemon.traces.writer import write_workload
from policies.model import Budget, GpuSlot, InstanceType, Job, Node, Width
from policies.protocols import Placer
from policies.site import PolicyEntry, PolicyOptions, Site

PATIENCE_SECONDS = 60.0
NOW = 1_800_000_000.0


def check_policy(entry: PolicyEntry, *, draws: int = 20) -> None:
    """Test a policy on random queues: only widths that the classes allow, and equal output for equal input.

    The quality of the widths is not tested.
    """
    assert isinstance(entry, PolicyEntry), f"a policy is a PolicyEntry, not {type(entry).__name__}"
    classes = (make_class("small"), make_class("large"))
    kind = an_instance_type()
    site = Site(
        problem=a_problem(*classes),
        budget=Budget(amount=60.0),
        instance_types={kind.gpu_type: kind},
        max_nodes=8,
    )
    allowed = {
        one.name: {
            Width(kind.gpu_type, int(gpus)) for gpus in one.phases[0].speedups[kind.gpu_type].whole_widths()
        }
        for one in classes
    }
    built, twin = (entry.build(site, PolicyOptions()).allocator for _ in range(2))
    assert dict(built.allocate([], now=NOW).widths) == {}, "an allocation for no jobs must be empty"
    draw = random.Random(0)
    for queue in range(draws):
        # A policy may remember jobs by id, so ids are not reused.
        jobs = [_random_job(draw, f"j{queue}-{n}", allowed) for n in range(draw.randint(1, 30))]
        found = built.allocate(jobs, now=NOW)
        known = {job.id: job for job in jobs}
        for name, width in found.widths.items():
            assert name in known, f"a width for {name!r}, which is not one of the given jobs"
            mine = known[name].class_name
            assert width in allowed[mine], f"{width} for a job of class {mine}, which allows {allowed[mine]}"
        again = twin.allocate(jobs, now=NOW)
        assert dict(again.widths) == dict(found.widths), (
            "the same input gave other widths: is the policy random?"
        )
        assert all(count >= 0 for count in (found.nodes or {}).values()), "a number of nodes is negative"


def check_placer(make: Callable[[float], Placer], *, draws: int = 50) -> None:
    """Test a placer on random fleets: full widths, ready nodes only, no GPU twice, placed jobs stay."""
    draw = random.Random(0)
    for _ in range(draws):
        kind = an_instance_type(gpus=draw.choice((1, 4, 8)))
        nodes = [
            Node(id=f"n{number}", instance_type=kind, is_ready=draw.random() < 0.8)
            for number in range(draw.randint(0, 6))
        ]
        ready = [node for node in nodes if node.is_ready]
        widths = {f"j{n}": Width(kind.gpu_type, draw.randint(1, 10)) for n in range(draw.randint(0, 8))}
        held = _held(widths, ready[:1])
        found = make(1.0).place(widths, nodes=nodes, held=held).slots
        taken: set[GpuSlot] = set()
        for name, slots in found.items():
            assert name in widths, f"GPUs for {name!r}, which is not one of the given jobs"
            assert len(slots) == widths[name].gpus, f"{len(slots)} GPUs for a job of width {widths[name]}"
            for slot in slots:
                assert slot.node in {node.id for node in ready}, f"{slot}: that node is not ready"
                assert 0 <= slot.index < kind.gpus, f"{slot}: that node has {kind.gpus} GPUs"
                assert slot not in taken, f"{slot} is given to two jobs"
                taken.add(slot)
        for name, slots in held.items():
            assert found.get(name) == slots, f"job {name} had suitable GPUs and was moved"
        again = make(1.0).place(widths, nodes=nodes, held=held).slots
        assert dict(again) == dict(found), "the same input gave other places: is the placer random?"


def check_trace_format(read: Callable[[Path, Options], Workload], source: Path) -> None:
    """Test an importer on a file of its format: the result can be written, and read by the simulator."""
    found = read(source, Options())
    assert found.trace.jobs, "no jobs were found"
    names = {one.name for one in found.classes}
    strangers = {job.class_name for job in found.trace.jobs} - names
    assert not strangers, f"jobs of unknown classes: {sorted(strangers)}"
    with TemporaryDirectory() as name:
        trace, classes = write_workload(found, Path(name))
        assert read_trace(trace).jobs == found.trace.jobs, "writing and reading changed the trace"
        kept = {one.name for one in load_problem(classes, require_rates=False).problem.classes}
        assert kept == names, "writing and reading changed the classes"
    assert read(source, Options()).trace == found.trace, "the same file gave another trace"
    few = read(source, Options(limit=1)).trace.jobs
    assert len(few) == 1, f"limit=1 gave {len(few)} jobs: pass the options to `workload.assemble`"


def check_cloud(
    cloud: Provider, *, kind: InstanceType, now: Callable[[], float], pass_time: Callable[[float], None]
) -> None:
    """Test an empty cloud, and leave it empty: launches, listings, ends, and the daemon's other calls.

    `pass_time` advances the cloud's clock by seconds; nodes must boot within ten minutes.
    """
    assert list(cloud.nodes()) == [], "an empty cloud must not list nodes"
    order = LaunchNodes(id="t1-launch-0", instance_type=kind, count=2, reason="a contract test")
    outcome = cloud.launch(order)
    assert isinstance(outcome, Launched), f"two nodes could not be launched: {outcome}"
    assert len(set(outcome.nodes)) == 2, "two nodes must have different names"
    again = cloud.launch(order)
    assert isinstance(again, Launched), f"the same order failed the second time: {again}"
    listed = {node.id: node for node in cloud.nodes() if node.ended_at is None}
    assert set(listed) == set(outcome.nodes), "one order, sent twice, launched twice: its id is the token"
    assert {node.launched_by for node in listed.values()} == {order.id}, (
        "launched_by is not the id of the order"
    )
    pass_time(600.0)
    assert all(node.phase == "ready" for node in cloud.nodes()), "ten minutes later the nodes are not ready"
    cloud.remember(list(cloud.nodes()))
    cloud.listen(lambda: None)
    cloud.renew(list(outcome.nodes))
    cloud.refresh()
    assert dict(cloud.sweep()) == {}, "a sweep ended nodes that were remembered"
    assert all(age is None or age >= 0.0 for age in cloud.ages().values()), "an age must not be negative"
    ended = now()
    orders = [TerminateNode(id=f"end-{name}", node=name, reason="a contract test") for name in outcome.nodes]
    said = cloud.terminate(orders)
    assert set(said) == set(outcome.nodes), "terminate must answer every order"
    assert set(said.values()) == {Accepted()}, f"running nodes could not be ended: {said}"
    seen: dict[str, float] = {}
    for _ in range(10):
        seen |= {node.id: node.ended_at for node in cloud.nodes() if node.ended_at is not None}
        pass_time(60.0)
    assert set(seen) == set(outcome.nodes), "an ended node was never listed: its bill needs the end"
    assert all(at >= ended - 1.0 for at in seen.values()), "a node ended before it was told to"
    assert set(cloud.terminate(orders).values()) == {Accepted()}, (
        "a node that is gone could not be ended again"
    )
    cloud.close()
    cloud.close()


def check_engine(make: Callable[[], Runner], *, folder: Path, nodes: Sequence[str] = ("n1",)) -> None:
    """Test an engine with three shell jobs: one that succeeds, one that fails, one that is killed."""
    engine = make()
    machines = [a_node(name) for name in nodes]
    _wait(lambda: set(engine.prepare(machines).values()) == {Accepted()}, "its nodes are never ready")
    slots = (GpuSlot(nodes[0], 0),)

    def spec_of(job: str, command: str) -> JobSpec:
        return JobSpec(job=job, name=job, class_name="default", run=command, workdir=str(folder))

    def run(job: str, command: str) -> None:
        assert engine.admit(spec_of(job, command)) == Accepted(), f"job {job} was not admitted"
        start = StartJob(
            id=f"start-{job}", job=job, generation=1, width=Width("gpu", 1), slots=slots, reason="test"
        )
        assert engine.start(start) == Accepted(), f"job {job} was not started"

    def end_of(job: str) -> RunReport:
        _wait(lambda: job in engine.poll() and engine.poll()[job].is_over, f"job {job} never ended")
        return engine.poll()[job]

    run("good", "echo $BOA_JOB_ID on $BOA_GPUS of $BOA_NODES in generation $BOA_GENERATION; echo kept > made")
    assert end_of("good").phase == "finished", f"a job with exit code 0 must be finished: {end_of('good')}"
    assert "good on 1 of 1 in generation 1" in engine.logs("good").text, engine.logs("good").text
    assert (folder / "made").read_text() == "kept\n", "it did not run in its workdir"
    run("bad", "echo oh no; exit 3")
    assert (end_of("bad").phase, end_of("bad").exit_code) == ("failed", 3), f"exit 3: {end_of('bad')}"
    run("slow", "sleep 600")
    _wait(lambda: engine.poll()["slow"].phase in ("starting", "running"), "job slow was never seen")
    again = make()
    assert again.admit(spec_of("slow", "sleep 600")) == Accepted(), "a running job was not admitted again"
    assert "slow" in again.reattach(), "a second process does not find the running job"
    assert again.kill("slow", 1) == Accepted(), "it could not be killed"
    _wait(lambda: again.poll()["slow"].is_over, "job slow was killed and goes on")
    assert again.kill("nobody", 1) == Accepted(), "an unknown job could not be killed"
    again.forget("slow")
    assert "slow" not in again.poll(), "a forgotten job is still listed"


def check_notifier(
    tell: Callable[[str, str], object], address: str, heard: Callable[[], Iterable[str]]
) -> None:
    """Test a notifier: a message arrives complete within ten seconds; `heard` returns received messages."""
    sentence = "at $41.20/hour this day would end at $988.80: the cap of $900.00 holds it back – ¥€"
    began = time.monotonic()
    tell(address, sentence)
    assert time.monotonic() - began < 10.0, "it kept the sender waiting for more than ten seconds"
    assert sentence in list(heard()), "the message did not arrive complete"


def _random_job(draw: random.Random, job: str, allowed: Mapping[str, set[Width]]) -> Job:
    """Return a random job that waits, or runs at an allowed width."""
    name = draw.choice(sorted(allowed))
    width = draw.choice([None, *sorted(allowed[name])])
    made = make_job(job, class_name=name, arrived_at=NOW - draw.uniform(0.0, 1e5))
    return replace(made, width=width, draw=draw.random(), remaining_gpu_hours=draw.uniform(0.01, 2.0))


def _held(widths: Mapping[str, Width], nodes: Sequence[Node]) -> dict[str, tuple[GpuSlot, ...]]:
    """Return the GPUs of the first job that fits on one of these nodes."""
    for node in nodes:
        for name, width in widths.items():
            if width.gpus <= node.instance_type.gpus:
                return {name: tuple(GpuSlot(node.id, index) for index in range(width.gpus))}
    return {}


def _wait(is_so: Callable[[], bool], sentence: str) -> None:
    """Wait until `is_so` returns true; raise AssertionError with the sentence after `PATIENCE_SECONDS`."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < until, sentence
        time.sleep(0.05)
