"""The study file: traces, budgets, policies, worlds and seeds, in YAML.

`docs/reference/study-file.md` describes it. Whatever is wrong is one `InputError` that names key, file and
line, and says what to type. Paths in it are looked for beside it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import Field

from boa_daemon.comparing.cells import REFERENCE, Comparison
from boa_daemon.comparing.study_worlds import CALM, WORLDS
from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.inputs.problem_file import ProblemFile, load_problem
from boa_daemon.inputs.schema import Name, NotNegative, Positive, Strict, a_kind, checked
from boa_daemon.inputs.yaml_file import Document, read_document
from boa_daemon.sim.settings import WorldSettings
from boa_daemon.sim.wiring import settings_for
from boa_daemon.sim.world_file import load_world
from boa_daemon.traces.fitted import fitted
from boa_daemon.traces.reader import Trace, check_classes, read_trace
from boa_daemon.units import parse_budget
from policies.errors import UnknownPolicy
from policies.model import Budget, InstanceType
from policies.optimum.frontier import MixedFrontier
from policies.registry import find_policy

WORLD_SUFFIXES = (".yaml", ".yml", ".json", ".toml")
_BUDGETS = "Write 60/h, 900/day, gpus:48, or x1.5 for 1.5 times what the load costs at its cheapest"


class _Trace(Strict):
    name: Name = Field(description="what the report calls it")
    trace: Name | None = Field(default=None, description="a file of arrivals")
    like: Name | None = Field(default=None, description="a file of arrivals, to draw load like theirs")
    classes: Name = Field(description="a class file or problem file")
    hours: Positive | None = Field(default=None, description="hours to draw, with like; those of the file")
    load: Positive = Field(default=1.0, description="with like: times the rates of the file")
    bursts: NotNegative | None = Field(
        default=None, description="with like: variance of an hour's rate over its square; as fitted"
    )


class StudyFile(Strict):
    """A study, as it is written."""

    title: Name = Field(default="A study", description="the heading of the report")
    traces: list[_Trace] = Field(min_length=1, description="whose jobs arrive when")
    budgets: list[Name] = Field(min_length=1, description="60/h, gpus:48 or x1.5, each on all traces")
    policies: list[Name] = Field(default=[], description="rivals of boa, each tuned to spend the same")
    worlds: list[Name] = Field(default=[CALM], min_length=1, description="names, or world files")
    seeds: int = Field(default=1, ge=1, le=10_000, description="draws of each trace")
    reference: Name = Field(default=REFERENCE, description="the policy whose spend the others meet")
    learns: bool = Field(default=False, description="the reference learns, as the daemon does")
    boot_seconds: NotNegative = Field(default=180.0, description="from launch to ready")
    max_nodes: int | None = Field(default=None, ge=1, description="a cap on nodes; none if left out")


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyCase:
    """One trace, drawn once, at one budget in one world: a comparison over its seeds."""

    trace: str
    draw: int
    budget: str
    world: str
    comparison: Comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What is run: the file, and its cases."""

    file: StudyFile
    cases: tuple[StudyCase, ...]

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return sum(case.comparison.cells for case in self.cases)


def load_study(path: str | Path) -> Study:
    """Return the study that a file describes, with all that it names read and checked.

    Raises:
        InputError: with file and line, when something in it is not what it should be.
    """
    document = read_document(path)
    if not isinstance(document.content, dict):
        raise document.error(f"a study file is a mapping; got {a_kind(document.content)}")
    file = checked(StudyFile, document.content, document=document)
    for key in ("traces", "budgets", "policies", "worlds"):
        values: list[Any] = getattr(file, key)
        names = [value.name if isinstance(value, _Trace) else value for value in values]
        for number, name in enumerate(names):
            if name in names[:number]:
                raise document.error(f"{key} names {name} twice", at=(key, number), hint="Remove one of them")
    for number, name in enumerate((*file.policies, file.reference)):
        try:
            find_policy(name)
        except UnknownPolicy as error:
            at = ("policies", number) if number < len(file.policies) else ("reference",)
            raise document.error(str(error), at=at) from error
    folder = Path(document.name).parent
    cases = [
        case
        for number, source in enumerate(file.traces)
        for case in _cases(file, number, _read(document, folder, number, source), document)
    ]
    return Study(file=file, cases=tuple(cases))


def _read(document: Document, folder: Path, number: int, source: _Trace) -> tuple[ProblemFile, Trace]:
    """Return the classes and the arrivals of a trace, or of what others are to be like."""
    at = ("traces", number)
    path = source.trace or source.like
    if path is None or (source.trace is not None and source.like is not None):
        raise document.error(
            f"traces[{source.name!r}] takes either trace or like",
            at=at,
            hint="Write trace: FILE for the arrivals themselves, or like: FILE for load that is drawn",
        )
    if source.trace is not None:
        for key in ("hours", "load", "bursts"):
            if key in source.model_fields_set:
                hint = f"Write like: {source.trace} to draw"
                raise document.error(f"traces[{source.name!r}].{key} is for like", at=(*at, key), hint=hint)
    file = load_problem(folder / source.classes, require_rates=False)
    trace = read_trace(folder / path)
    check_classes(trace, [job_class.name for job_class in file.problem.classes], folder / path)
    return file, trace


def _cases(
    file: StudyFile, number: int, read: tuple[ProblemFile, Trace], document: Document
) -> list[StudyCase]:
    """Return the cases of one trace: a draw, or the trace itself with its jobs in as many orders."""
    source, (problem, trace) = file.traces[number], read
    traces, seeds = [trace], file.seeds
    if source.like is not None:
        load, hours = fitted(trace), source.hours or trace.window_hours
        seeds, draws = 1, range(file.seeds)
        traces = [load.draw(hours, seed=seed, load=source.load, bursts=source.bursts) for seed in draws]
    found = []
    for draw, arrivals in enumerate(traces):
        for place, text in enumerate(file.budgets):
            budget = _budget(text, problem, arrivals, document, place)
            settings = settings_for(problem, arrivals, budget)
            machines = tuple(settings.instance_types.values())
            for position, name in enumerate(file.worlds):
                world = _world(machines, problem, document, position, name)
                comparison = Comparison(
                    shared=replace(
                        settings,
                        world=world,
                        learns=file.learns,
                        boot_seconds=file.boot_seconds,
                        max_nodes=file.max_nodes,
                    ),
                    budgets=(budget,),
                    rivals=tuple(name for name in file.policies if name != file.reference),
                    seeds=seeds,
                    reference=file.reference,
                )
                found.append(
                    StudyCase(
                        trace=source.name,
                        draw=draw,
                        budget=text,
                        world=Path(name).stem if name not in WORLDS else name,
                        comparison=comparison,
                    )
                )
    return found


def _budget(text: str, problem: ProblemFile, trace: Trace, document: Document, place: int) -> Budget:
    """Return a budget; one in multiples of the load is worked out for the trace."""
    try:
        if not text.startswith("x"):
            return parse_budget(text)
        factor = float(text[1:])
        if not 0.0 < factor < 1e6:
            raise ValueError
    except InputError as error:
        raise document.error(f"budgets: {error.problem}", at=("budgets", place), hint=_BUDGETS) from error
    except ValueError:
        raise document.error(
            f"budgets: {text!r} is no budget", at=("budgets", place), hint=_BUDGETS
        ) from None
    unit = "usd_per_hour" if problem.has_prices else "gpus"
    settings = settings_for(problem, trace, Budget(amount=1.0, unit=unit))  # type: ignore[arg-type]
    bare = tuple(replace(c, startup_hours=0.0, rescale_hours=0.0) for c in settings.problem.classes)
    load = MixedFrontier.of(replace(settings.problem, classes=bare)).cheapest_feasible_spend
    return replace(settings.budget, amount=factor * load)


def _world(
    machines: Collection[InstanceType], problem: ProblemFile, document: Document, position: int, name: str
) -> WorldSettings:
    """Return a world by its name, or of a file."""
    names = [job_class.name for job_class in problem.problem.classes]
    if name in WORLDS:
        return WORLDS[name](names)
    if not name.endswith(WORLD_SUFFIXES):
        raise document.error(
            f"worlds: there is no world {name!r}",
            at=("worlds", position),
            hint=f"{did_you_mean(name, WORLDS)} A world of your own is a file that ends in .yaml",
        )
    return load_world(Path(document.name).parent / name, machines, names)
