"""The study file: traces, budgets, policies, worlds and seeds, in YAML.

`docs/reference/study-file.md` describes the format. A mistake raises an `InputError` with key, file and line,
and what to type. Paths are relative to the study file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from pydantic import Field

from boa_daemon.comparing.cells import REFERENCE, Comparison
from boa_daemon.comparing.study_worlds import CALM, WORLDS
from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.inputs.document_file import Document, KeyPath, read_document
from boa_daemon.inputs.problem_file import ProblemFile, load_problem
from boa_daemon.inputs.schema import Name, NotNegative, Positive, Strict, a_kind, checked
from boa_daemon.sim.wiring import settings_for
from boa_daemon.sim.world_file import load_world
from boa_daemon.sim.world_settings import WorldSettings
from boa_daemon.traces.goodness_of_fit import GoodnessOfFit, goodness_of_fit
from boa_daemon.traces.importers import import_source
from boa_daemon.traces.load_model import TraceLoad, fit_load
from boa_daemon.traces.reader import Trace, check_classes, read_trace
from boa_daemon.traces.workload import Options
from boa_daemon.traces.writer import write_workload
from boa_daemon.units import parse_budget
from policies.errors import UnknownPolicy
from policies.model import Budget, InstanceType
from policies.optimum.frontier import MixedFrontier
from policies.registry import find_policy

WORLD_SUFFIXES = (".yaml", ".yml", ".json", ".toml")
_BUDGETS = "Write 60/h, 900/day, gpus:48, or x1.5 for 1.5 times the least cost of the load"


class _Source(Strict):
    format: Name = Field(description="format: pollux, gavel, itp, shockwave and so on")
    path: Name = Field(description="its file or folder")
    workload: Name | None = Field(default=None, description="file to read, if there are several")
    apps: list[Name] | None = Field(default=None, description="only jobs of these applications")
    profiles: Name | None = Field(default=None, description="measured speed-ups for a trace without any")
    limit: int | None = Field(default=None, ge=1, description="at most this many jobs, the earliest")


class _Trace(Strict):
    name: Name = Field(description="name of the trace in the report")
    trace: Name | None = Field(default=None, description="a file of arrivals")
    like: Name | None = Field(default=None, description="a file of arrivals, to draw similar load")
    source: _Source | None = Field(default=None, description="a public trace, imported as by trace import")
    classes: Name | None = Field(default=None, description="a class file or problem file")
    budgets: list[Name] | None = Field(default=None, min_length=1, description="in place of the study's")
    worlds: list[Name] | None = Field(default=None, min_length=1, description="in place of the study's")
    boot_seconds: NotNegative | None = Field(default=None, description="in place of the study's")
    max_nodes: int | None = Field(default=None, ge=1, description="in place of the study's")
    hours: Positive | None = Field(default=None, description="hours to draw, with like; those of the file")
    load: Positive = Field(default=1.0, description="with like: factor on the file's rates")
    bursts: NotNegative | None = Field(
        default=None, description="with like: variance of the hourly rate over its mean squared; as fitted"
    )


class StudyFile(Strict):
    """The contents of a study file."""

    title: Name = Field(default="A study", description="the heading of the report")
    traces: list[_Trace] = Field(min_length=1, description="traces of jobs")
    budgets: list[Name] = Field(min_length=1, description="60/h, gpus:48 or x1.5, each for all traces")
    policies: list[Name] = Field(default=[], description="rivals of boa, each tuned to spend the same")
    worlds: list[Name] = Field(default=[CALM], min_length=1, description="names, or world files")
    seeds: int = Field(default=1, ge=1, le=10_000, description="draws of each trace")
    reference: Name = Field(default=REFERENCE, description="the policy whose spend the others meet")
    learns: bool = Field(default=False, description="whether the reference learns, as the daemon does")
    boot_seconds: NotNegative = Field(default=180.0, description="seconds from launch to ready")
    max_nodes: int | None = Field(default=None, ge=1, description="a cap on nodes; none if left out")


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyCase:
    """One trace or draw of it, at one budget in one world: a comparison over its seeds."""

    trace: str
    draw: int
    budget: str
    world: str
    comparison: Comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A study: its file and its cases; `loads` has the goodness of fit of each drawn load."""

    file: StudyFile
    cases: tuple[StudyCase, ...]
    loads: Mapping[str, GoodnessOfFit] = field(default_factory=dict)

    @property
    def rivals(self) -> list[str]:
        """The policies other than the reference."""
        return [name for name in self.file.policies if name != self.file.reference]

    @property
    def budgets(self) -> list[str]:
        """The budgets, as written."""
        return list(dict.fromkeys(case.budget for case in self.cases))

    @property
    def cells(self) -> int:
        """The number of cells."""
        return sum(case.comparison.cells for case in self.cases)


class _Read(NamedTuple):
    """The classes and arrivals of a trace entry, and the load model if arrivals are drawn."""

    problem: ProblemFile
    trace: Trace
    load: TraceLoad | None


def load_study(path: str | Path) -> Study:
    """Return the study of a file, with all files that it names read and checked.

    Raises:
        InputError: when something in the file is not valid; with file and line.
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
    found = [_read(document, folder, number, source) for number, source in enumerate(file.traces)]
    cases = [case for number, read in enumerate(found) for case in _cases(file, number, read, document)]
    # Takes hundreds of draws, so it comes after all checks.
    loads = {
        source.name: goodness_of_fit(read.trace, read.load)
        for source, read in zip(file.traces, found, strict=True)
        if read.load is not None
    }
    return Study(file=file, cases=tuple(cases), loads=loads)


def _read(document: Document, folder: Path, number: int, source: _Trace) -> _Read:
    """Return the classes and arrivals of a trace entry; with `like` also its fitted load model."""
    at, name = ("traces", number), f"traces[{source.name!r}]"
    path = source.trace or source.like
    if sum(one is not None for one in (source.trace, source.like, source.source)) != 1:
        hint = "Write trace: FILE for the arrivals themselves, or like: FILE for load that is drawn"
        raise document.error(f"{name} takes either trace or like, or a source", at=at, hint=hint)
    if source.like is None:
        for key in ("hours", "load", "bursts"):
            if key in source.model_fields_set:
                hint = f"Write like: {path or 'FILE'} to draw"
                raise document.error(f"{name}.{key} is for like", at=(*at, key), hint=hint)
    if (source.classes is None) == (source.source is None):
        hint = "A source brings its own classes; trace and like need classes: FILE"
        words = "is missing" if source.classes is None else "is not for a source"
        raise document.error(f"{name}.classes {words}", at=at, hint=hint)
    if source.source is not None:
        return _imported(source.source, folder)
    assert path is not None
    assert source.classes is not None
    file = load_problem(folder / source.classes, require_rates=False)
    trace = read_trace(folder / path)
    check_classes(trace, [job_class.name for job_class in file.problem.classes], folder / path)
    return _Read(file, trace, None if source.like is None else fit_load(trace))


def _imported(source: _Source, folder: Path) -> _Read:
    """Return the classes and arrivals of a public trace, through the files that `boa trace import` writes."""
    options = Options(
        workload=source.workload,
        apps=None if source.apps is None else tuple(source.apps),
        profiles=None if source.profiles is None else folder / source.profiles,
        limit=source.limit,
    )
    workload = import_source(source.format, folder / source.path, options)
    with TemporaryDirectory(prefix="boa-study-") as name:
        trace, classes = write_workload(workload, Path(name))
        return _Read(load_problem(classes, require_rates=False), read_trace(trace), None)


def _cases(file: StudyFile, number: int, read: _Read, document: Document) -> list[StudyCase]:
    """Return the cases of one trace: draws of its load, or one case whose seeds reorder its jobs."""
    problem, trace, load = read
    source = file.traces[number]
    traces, seeds = [trace], file.seeds
    if load is not None:
        hours = source.hours or trace.window_hours
        seeds, draws = 1, range(file.seeds)
        traces = [load.draw(hours, seed=seed, load=source.load, bursts=source.bursts) for seed in draws]
    at: KeyPath = ("traces", number)
    budgets, of_budgets = (file.budgets, ()) if source.budgets is None else (source.budgets, at)
    worlds, of_worlds = (file.worlds, ()) if source.worlds is None else (source.worlds, at)
    boot_seconds = file.boot_seconds if source.boot_seconds is None else source.boot_seconds
    max_nodes = source.max_nodes or file.max_nodes
    found = []
    for draw, arrivals in enumerate(traces):
        for place, text in enumerate(budgets):
            budget = _budget(text, problem, arrivals, document, (*of_budgets, "budgets", place))
            settings = settings_for(problem, arrivals, budget)
            machines = tuple(settings.instance_types.values())
            for position, name in enumerate(worlds):
                world = _world(machines, problem, document, (*of_worlds, "worlds", position), name)
                comparison = Comparison(
                    shared=replace(
                        settings,
                        world=world,
                        learns=file.learns,
                        boot_seconds=boot_seconds,
                        max_nodes=max_nodes,
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


def _budget(text: str, problem: ProblemFile, trace: Trace, document: Document, at: KeyPath) -> Budget:
    """Return a budget; one such as x1.5 is computed from the trace's load."""
    try:
        if not text.startswith("x"):
            return parse_budget(text)
        factor = float(text[1:])
        if not 0.0 < factor < 1e6:
            raise ValueError
    except InputError as error:
        raise document.error(f"budgets: {error.problem}", at=at, hint=_BUDGETS) from error
    except ValueError:
        raise document.error(f"budgets: {text!r} is no budget", at=at, hint=_BUDGETS) from None
    unit = "usd_per_hour" if problem.has_prices else "gpus"
    settings = settings_for(problem, trace, Budget(amount=1.0, unit=unit))  # type: ignore[arg-type]
    bare = tuple(replace(c, startup_hours=0.0, rescale_hours=0.0) for c in settings.problem.classes)
    load = MixedFrontier.of(replace(settings.problem, classes=bare)).cheapest_feasible_spend
    return replace(settings.budget, amount=factor * load)


def _world(
    machines: Collection[InstanceType], problem: ProblemFile, document: Document, at: KeyPath, name: str
) -> WorldSettings:
    """Return the world of a name or a file."""
    names = [job_class.name for job_class in problem.problem.classes]
    if name in WORLDS:
        return WORLDS[name](names)
    if not name.endswith(WORLD_SUFFIXES):
        known = did_you_mean(name, WORLDS)
        hint = f"{known}{'' if known.endswith('?') else '.'} A world of your own is a file that ends in .yaml"
        raise document.error(f"worlds: there is no world {name!r}", at=at, hint=hint)
    return load_world(Path(document.name).parent / name, machines, names)
