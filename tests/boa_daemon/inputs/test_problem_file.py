"""The problem file: its format, and its errors."""

from __future__ import annotations

import contextlib
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.errors import InputError, MissingPrice, exit_code_of
from boa_daemon.inputs.document_file import Document, read_document
from boa_daemon.inputs.problem_file import ProblemFile, load_problem, parse_problem, with_budget
from policies.model import Budget, GpuType, JobClass, Phase, Problem
from policies.speedup import MAX_GPUS, Amdahl, PowerLaw, SpeedupCurve, Table, UniversalScalability

REPOSITORY = Path(__file__).parents[3]
PROBLEMS = REPOSITORY / "tests" / "data" / "problems"

GOOD = """\
budget: {usd_per_hour: 12.5}
gpu_types:
  v100: {usd_per_gpu_hour: 3.06}
  a100: {usd_per_gpu_hour: 2.74}
classes:
  - name: vision
    arrivals_per_hour: 6.0
    weight: 1.0
    startup_hours: 0.03
    rescale_hours: 0.03
    phases:
      - size_gpu_hours: 0.6
        speedup:
          v100: {table: {1: 1.0, 2: 1.72}}
          a100: {amdahl: {parallel_fraction: 0.98}}
  - name: speech
    arrivals_per_hour: 2.0
    phases:
      - size_gpu_hours: 1.2
        speedup: {v100: {power: {exponent: 0.8}}}
"""


def parsed(text: str, tmp_path: Path, *, require_rates: bool = True) -> ProblemFile:
    path = tmp_path / "problem.yaml"
    path.write_text(text, encoding="utf-8")
    return load_problem(path, require_rates=require_rates)


def refused(text: str, tmp_path: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        parsed(text, tmp_path)
    message = str(caught.value)
    assert "\n" not in message
    assert "pydantic" not in message
    assert exit_code_of(caught.value) == 2
    return caught.value


def test_a_problem_file_becomes_the_planners_problem(tmp_path: Path) -> None:
    """Types, classes, phases and curves are as written; omitted keys have their defaults."""
    file = parsed(GOOD, tmp_path)

    assert file.problem == Problem(
        gpu_types=(GpuType(name="v100", usd_per_gpu_hour=3.06), GpuType(name="a100", usd_per_gpu_hour=2.74)),
        classes=(
            JobClass(
                name="vision",
                arrivals_per_hour=6.0,
                startup_hours=0.03,
                rescale_hours=0.03,
                phases=(
                    Phase(
                        size_gpu_hours=0.6,
                        speedups={
                            "v100": Table(gpus=(1, 2), speeds=(1.0, 1.72)),
                            "a100": Amdahl(parallel_fraction=0.98),
                        },
                    ),
                ),
            ),
            JobClass(
                name="speech",
                arrivals_per_hour=2.0,
                phases=(Phase(size_gpu_hours=1.2, speedups={"v100": PowerLaw(exponent=0.8)}),),
            ),
        ),
    )
    assert file.budget == Budget(amount=12.5)
    assert file.instance_types["v100"].gpus == 1
    assert file.warnings == ()


def test_the_same_problem_in_yaml_json_and_toml_is_equal() -> None:
    """The budget is equal too."""
    problems = [load_problem(PROBLEMS / f"one-type.{suffix}") for suffix in ("yaml", "json", "toml")]

    assert problems[0].problem == problems[1].problem == problems[2].problem
    assert problems[0].budget == Budget(amount=15.0, unit="gpus")


@pytest.mark.parametrize("name", ["problem.yaml", "two-gpu-types.yaml"])
def test_the_examples_load(name: str) -> None:
    """Every shipped example is a problem with a budget."""
    assert load_problem(REPOSITORY / "examples" / name).budget is not None


def test_the_reference_pages_problem_file_and_errors_are_real(tmp_path: Path) -> None:
    """The YAML of docs/reference/problem-file.md loads, and its two errors are those that BOA gives."""
    page = (REPOSITORY / "docs" / "reference" / "problem-file.md").read_text(encoding="utf-8")
    text = page.split("```yaml\n")[1].split("```")[0]

    assert [gpu.name for gpu in parsed(text, tmp_path).problem.gpu_types] == ["v100", "a100"]
    for old, new in (
        ("arrivals_per_hour: 6.0", "arrivals_per_second: 1"),
        ("{usd_per_gpu_hour: 2.74}", "{}"),
    ):
        error = refused(GOOD.replace(old, new), tmp_path)
        assert f"{type(error).__name__}: {error}".replace(f"{tmp_path}/", "") in page


def test_a_problem_without_gpu_types_has_one_type_of_price_one() -> None:
    """A budget in GPUs needs no prices."""
    file = load_problem(PROBLEMS / "one-type.yaml")

    assert file.problem.gpu_types == (GpuType(name="gpu", usd_per_gpu_hour=1.0),)
    assert file.problem.budget_unit == "gpus"
    assert not file.has_prices


def test_a_catalogue_type_has_its_price_and_gpus_from_the_catalogue() -> None:
    """The file's own price takes precedence, and retired machines have a warning."""
    file = load_problem(PROBLEMS / "class-file.yaml", require_rates=False)

    assert file.problem.price_of("v100") == 24.48 / 8
    assert file.instance_types["v100"].gpus == 8
    assert file.problem.price_of("t4") == 0.8
    assert file.instance_types["t4"].usd_per_hour == 0.8 * 4
    assert len(file.warnings) == 1
    assert "p3.16xlarge is retired" in file.warnings[0]


def test_a_class_file_may_omit_arrival_rates() -> None:
    """Classes without a rate get one arrival per hour and are listed; in a problem file they are an error."""
    file = load_problem(PROBLEMS / "class-file.yaml", require_rates=False)

    assert file.classes_without_rates == {"bert"}
    assert file.problem.classes[0].arrivals_per_hour == 1.0
    with pytest.raises(
        InputError, match=r"class-file\.yaml:6: classes\['bert'\]: arrivals_per_hour is missing"
    ):
        load_problem(PROBLEMS / "class-file.yaml")


def test_with_budget_can_change_the_unit_of_the_budget(tmp_path: Path) -> None:
    """With a budget in GPUs every GPU costs one, whatever its price."""
    file = with_budget(parsed(GOOD, tmp_path), Budget(amount=8, unit="gpus"))

    assert file.budget == Budget(amount=8, unit="gpus")
    assert file.problem.price_of("v100") == 1.0
    assert with_budget(file, Budget(amount=5.0)).problem.price_of("v100") == 3.06


def test_a_budget_in_dollars_needs_prices() -> None:
    """A file without gpu_types has no prices."""
    with pytest.raises(MissingPrice, match="'gpu'"):
        with_budget(load_problem(PROBLEMS / "one-type.yaml"), Budget(amount=5.0))


def test_a_class_may_restrict_its_widths(tmp_path: Path) -> None:
    """A class's limits narrow every curve; a GPU type without a remaining width is dropped."""
    limited = GOOD.replace("weight: 1.0", "max_gpus: 4\n    min_gpus: 3")

    speedups = parsed(limited, tmp_path).problem.classes[0].phases[0].speedups

    assert speedups == {"a100": Amdahl(parallel_fraction=0.98, min_gpus=3, max_gpus=4)}


def test_a_truncated_file_is_refused_with_its_last_line() -> None:
    """The error says that the file is cut short."""
    with pytest.raises(InputError, match=r"half-written\.yaml:7: not valid YAML.*cut short"):
        load_problem(PROBLEMS / "half-written.yaml")


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        # Unknown keys at each level.
        ("budget:", "buget:", 1, "unknown key 'buget'. Did you mean 'budget'"),
        (
            "usd_per_hour: 12.5",
            "usd_per_day: 300",
            1,
            "'usd_per_day' in budget. Did you mean 'usd_per_hour' (dollars per hour)",
        ),
        (
            "v100: {usd_per_gpu_hour",
            "v100: {usd_per_hour",
            3,
            "Did you mean 'usd_per_gpu_hour' (dollars per hour of one GPU)",
        ),
        (
            "    arrivals_per_hour: 6.0",
            "    arrivals_per_second: 0.1",
            7,
            "Did you mean 'arrivals_per_hour' (jobs per hour)",
        ),
        (
            "size_gpu_hours: 0.6",
            "size_gpu_seconds: 2160",
            12,
            "Did you mean 'size_gpu_hours' (hours on one GPU of the",
        ),
        ("startup_hours", "startup_seconds", 9, "Did you mean 'startup_hours'"),
        ("parallel_fraction: 0.98", "parallel_fraction: 0.98, max_gpu: 4", 15, "Did you mean 'max_gpus'"),
        ("{table: {1: 1.0, 2: 1.72}}", "{tabel: {1: 1.0}}", 14, "unknown form 'tabel' in classes['vision']"),
        # Names.
        ("name: speech", "name: vision", 16, "class 'vision' is defined twice"),
        ("name: speech", "name: ''", 16, "must be text of at least one character"),
        ("name: speech", "name: 7", 16, "classes[1].name must be text; got 7"),
        (
            "a100: {usd_per_gpu_hour: 2.74}",
            "v100: {usd_per_gpu_hour: 2.74}",
            4,
            "the key 'v100' is given twice",
        ),
        ("a100: {usd_per_gpu_hour: 2.74}", "100: {usd_per_gpu_hour: 2.74}", 4, "put quotes around it"),
        (
            "a100: {usd_per_gpu_hour: 2.74}",
            "table: {usd_per_gpu_hour: 2.74}",
            4,
            "'table' is a form of speed-up",
        ),
        # Invalid numbers.
        (
            "arrivals_per_hour: 6.0",
            "arrivals_per_hour: 0",
            7,
            "arrivals_per_hour must be more than zero; got 0",
        ),
        ("arrivals_per_hour: 6.0", "arrivals_per_hour: -1", 7, "must be more than zero; got -1"),
        ("arrivals_per_hour: 6.0", "arrivals_per_hour: '6'", 7, "must be a number; got the text '6'"),
        ("arrivals_per_hour: 6.0", "arrivals_per_hour: true", 7, "must be a number; got true"),
        ("arrivals_per_hour: 6.0", "arrivals_per_hour: .nan", 7, "must be a finite number; got nan"),
        ("arrivals_per_hour: 6.0", "arrivals_per_hour: 1e400", 7, "must be a finite number; got inf"),
        ("arrivals_per_hour: 6.0", "arrivals_per_hour: " + "9" * 5000, 7, "must be a finite number; got inf"),
        ("arrivals_per_hour: 6.0", "arrivals_per_hour: 1e13", 7, "must be at most 1e+12; got 1"),
        ("arrivals_per_hour: 6.0", "arrivals_per_hour: 6/h", 7, "must be a number; got the text '6/h'"),
        ("    arrivals_per_hour: 6.0\n", "", 6, "classes['vision']: arrivals_per_hour is missing"),
        ("weight: 1.0", "weight: 0", 8, "classes['vision'].weight must be more than zero"),
        ("weight: 1.0", "weight: [1]", 8, "must be a number; got a list"),
        ("startup_hours: 0.03", "startup_hours: -0.03", 9, "startup_hours must be at least 0; got -0.03"),
        (
            "size_gpu_hours: 0.6",
            "size_gpu_hours: 0",
            12,
            "classes['vision'].phases[0].size_gpu_hours must be more",
        ),
        ("size_gpu_hours: 0.6", "size_gpu_hours: 1e15", 12, "must be at most 1e+12"),
        ("size_gpu_hours: 0.6", "size_gpu_hours: 1e-300", 12, "must be at least 1e-12"),
        ("usd_per_gpu_hour: 2.74", "usd_per_gpu_hour: 0", 4, "must be more than zero; got 0"),
        ("exponent: 0.8", "exponent: 1.8", 20, "power.exponent must be at most 1; got 1.8"),
        ("exponent: 0.8", "exponent: 0.8, speed: 0", 20, "power.speed must be more than zero"),
        ("exponent: 0.8", "exponent: 0.8, max_gpus: 2.5", 20, "max_gpus must be a whole number; got 2.5"),
        ("exponent: 0.8", "exponent: 0.8, max_gpus: 10000000", 20, f"must be at most {MAX_GPUS:g}"),
        (
            "exponent: 0.8",
            "exponent: 0.8, max_gpus: 2, min_gpus: 4",
            20,
            "min_gpus must be from 1 to max_gpus (2)",
        ),
        ("exponent: 0.8", "speed: 1.0", 20, "power.exponent is missing"),
        # Tables.
        ("{1: 1.0, 2: 1.72}", "{}", 14, "v100.table must map widths to speeds; got an empty mapping"),
        ("{1: 1.0, 2: 1.72}", "[1.0, 1.72]", 14, "must map widths to speeds; got a list"),
        ("{1: 1.0, 2: 1.72}", "{1: 1.0, 2: 0}", 14, "the speed at 2 GPUs must be a number"),
        ("{1: 1.0, 2: 1.72}", "{1: 1.0, 2: -1.72}", 14, "more than zero; got -1.72"),
        ("{1: 1.0, 2: 1.72}", "{1: 1.0, 2: .inf}", 14, "got inf"),
        ("{1: 1.0, 2: 1.72}", "{1: 1.0, 2: .nan}", 14, "got nan"),
        ("{1: 1.0, 2: 1.72}", "{1: 1.0, 2: yes}", 14, "got the text 'yes'"),
        ("{1: 1.0, 2: 1.72}", "{1: 1.0, 2: true}", 14, "got true"),
        ("{1: 1.0, 2: 1.72}", "{1: 1.0, 1.5: 1.72}", 14, "widths are whole GPUs, from 1 to 1000000; got 1.5"),
        ("{1: 1.0, 2: 1.72}", "{1: 1.0, 2.0: 1.72}", 14, "widths are whole GPUs"),
        ("{1: 1.0, 2: 1.72}", "{0: 1.0, 2: 1.72}", 14, "got 0"),
        ("{1: 1.0, 2: 1.72}", "{-1: 1.0, 2: 1.72}", 14, "got -1"),
        ("{1: 1.0, 2: 1.72}", "{true: 1.0, 2: 1.72}", 14, "got true"),
        ("{1: 1.0, 2: 1.72}", "{1: 1.0, 2000000: 1.72}", 14, "got 2000000"),
        ("{1: 1.0, 2: 1.72}", "{one: 1.0, 2: 1.72}", 14, "got the text 'one'"),
        ("{1: 1.0, 2: 1.72}", "{1: 1.0, 1: 1.72}", 14, "the key '1' is given twice"),
        ("{1: 1.0, 2: 1.72}", "{1: 1.0, '1': 1.72}", 14, "got 1 then 1"),
        # Speed-ups.
        ("v100: {power: {exponent: 0.8}}", "power: {exponent: 0.8}", 20, "must name a GPU type: v100, a100"),
        ("v100: {power: {exponent: 0.8}}", "", 20, "got an empty mapping"),
        (
            "v100: {power: {exponent: 0.8}}",
            "v100: 3",
            20,
            "must be exactly one of table, amdahl, power, usl; got 3",
        ),
        ("{power: {exponent: 0.8}}", "{power: {exponent: 0.8}, table: {1: 1}}", 20, "got power and table"),
        ("{power: {exponent: 0.8}}", "{power: 0.8}", 20, "must be a mapping; got 0.8"),
        ("arrivals_per_hour: 2.0", "arrivals_per_hour: 2.0\n    min_gpus: 100", 20, "leave no width"),
        # Shapes.
        ("budget: {usd_per_hour: 12.5}", "budget: {usd_per_hour: 1, gpus: 2}", 1, "got both"),
        ("budget: {usd_per_hour: 12.5}", "budget: {}", 1, "got neither"),
        ("budget: {usd_per_hour: 12.5}", "budget: 12.5", 1, "budget must be a mapping; got 12.5"),
        ("usd_per_hour: 12.5", "usd_per_hour: -3", 1, "budget.usd_per_hour must be more than zero; got -3"),
        ("usd_per_hour: 12.5", "gpus: 0", 1, "budget.gpus must be more than zero; got 0"),
        ("v100: {usd_per_gpu_hour: 3.06}", "v100: 3.06", 3, "gpu_types.v100 must be a mapping; got 3.06"),
        ("v100: {usd_per_gpu_hour: 3.06}", "v100: {instance_type: p3.17xlarge}", 3, "Did you mean 'p3.1"),
        ("v100: {usd_per_gpu_hour: 3.06}", "v100: {instance_type: p4d.24xlarge}", 3, "carries a100 GPUs"),
        (
            "v100: {usd_per_gpu_hour: 3.06}",
            "v100: {instance_type: p3.16xlarge, gpus_per_instance: 4}",
            3,
            "p3.16xlarge has 8 GPUs; got gpus_per_instance 4",
        ),
        (
            "  - name: speech\n    arrivals",
            "  - nothing\n  - name: speech\n    arrivals",
            16,
            "classes[1] must be a mapping",
        ),
    ],
)
def test_an_error_in_a_problem_file_gives_key_value_file_and_line(
    old: str, new: str, line: int, words: str, tmp_path: Path
) -> None:
    """Each error is one line of text."""
    assert old in GOOD

    error = refused(GOOD.replace(old, new, 1), tmp_path)

    assert words in str(error)
    assert error.line == line
    assert error.file == str(tmp_path / "problem.yaml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1, 2]", "must be a mapping"),
        ("classes: []", "must be a list of at least one item; got an empty list"),
        ("classes: {}", "classes must be a list; got an empty mapping"),
        ("budget: {gpus: 1}", "classes is missing"),
        (
            "classes: [{name: a, arrivals_per_hour: 1, phases: []}]",
            "phases must be a list of at least one item",
        ),
        (
            "gpu_types: {}\nclasses: [{name: a, phases: [{size_gpu_hours: 1, speedup: 1}]}]",
            "gpu_types is empty",
        ),
        ("classes: [{name: a, arrivals_per_hour: 1, phases: [{size_gpu_hours: 1}]}]", "speedup is missing"),
    ],
)
def test_an_empty_or_misshapen_file_is_refused(text: str, words: str, tmp_path: Path) -> None:
    """Lists, mappings and required keys must be where the format has them."""
    message = str(refused(text, tmp_path))

    assert words.replace("must be a mapping", "is a mapping") in message or words in message


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        (
            "a100: {usd_per_gpu_hour: 2.74}",
            "a100: {}",
            4,
            "'a100' has no price. Add usd_per_gpu_hour, or instance_type: p4d",
        ),
        ("a100: {usd_per_gpu_hour: 2.74}", "a100:", 4, "GPU type 'a100' has no price"),
        ("  a100: {usd_per_gpu_hour: 2.74}\n", "", 14, "GPU type 'a100' has a speed-up but no price"),
        ("{usd_per_gpu_hour: 2.74}", "{instance_type: p5e.48xlarge}", 4, "'p5e.48xlarge' has no price"),
    ],
)
def test_a_missing_price_is_an_error_with_the_type_and_line(
    old: str, new: str, line: int, words: str, tmp_path: Path
) -> None:
    """A type without a price is never free."""
    error = refused(GOOD.replace(old, new, 1), tmp_path)

    assert isinstance(error, MissingPrice)
    assert words in str(error)
    assert error.line == line


def test_a_budget_in_dollars_without_gpu_types_is_refused(tmp_path: Path) -> None:
    """`gpu_types` is optional only with a budget in GPUs."""
    text = (PROBLEMS / "one-type.yaml").read_text(encoding="utf-8").replace("gpus: 15", "usd_per_hour: 3")

    assert isinstance(refused(text, tmp_path), MissingPrice)


def test_huge_integers_in_toml_and_json_are_refused(tmp_path: Path) -> None:
    """Integers beyond any float are input errors with a line."""
    huge = "1" + "0" * 400
    for suffix, text in {
        "toml": f'[[classes]]\nname = "a"\narrivals_per_hour = {huge}\nphases = []\n',
        "json": f'{{"classes": [{{"name": "a",\n\n"arrivals_per_hour": {huge}, "phases": []}}]}}',
    }.items():
        path = tmp_path / f"huge.{suffix}"
        path.write_text(text)
        with pytest.raises(InputError, match="arrivals_per_hour must be") as caught:
            load_problem(path)
        assert caught.value.line == 3
        assert len(str(caught.value)) < 400


amounts = st.floats(min_value=1e-9, max_value=1e9, allow_subnormal=False)
fractions = st.floats(min_value=0.0, max_value=1.0, allow_subnormal=False)
names = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=8).map(
    lambda name: f"c{name}"
)
ranges = st.tuples(st.integers(1, 64), st.integers(1, 64)).map(sorted)


@st.composite
def curves(draw: st.DrawFn) -> SpeedupCurve:
    kind = draw(st.sampled_from(["table", "amdahl", "power", "usl"]))
    least, most = draw(ranges)
    limits: dict[str, Any] = {"speed": draw(amounts), "min_gpus": least, "max_gpus": most}
    if kind == "table":
        widths = sorted(draw(st.sets(st.integers(1, MAX_GPUS), min_size=1, max_size=5)))
        return Table(gpus=tuple(widths), speeds=tuple(draw(amounts) for _ in widths))
    if kind == "amdahl":
        return Amdahl(parallel_fraction=draw(fractions), **limits)
    if kind == "power":
        return PowerLaw(exponent=draw(fractions), **limits)
    return UniversalScalability(contention=draw(fractions), crosstalk=draw(fractions), **limits)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    prices = draw(st.dictionaries(names, amounts, min_size=1, max_size=3))
    speedups = st.dictionaries(st.sampled_from(sorted(prices)), curves(), min_size=1)
    phases = st.builds(Phase, size_gpu_hours=amounts, speedups=speedups)
    return Problem(
        gpu_types=tuple(GpuType(name=name, usd_per_gpu_hour=price) for name, price in prices.items()),
        classes=tuple(
            JobClass(
                name=name,
                arrivals_per_hour=draw(amounts),
                weight=draw(amounts),
                startup_hours=draw(st.just(0.0) | amounts),
                rescale_hours=draw(st.just(0.0) | amounts),
                phases=tuple(draw(st.lists(phases, min_size=1, max_size=2))),
            )
            for name in draw(st.lists(names, min_size=1, max_size=3, unique=True))
        ),
        budget_unit=draw(st.sampled_from(["usd_per_hour", "gpus"])),
    )


def as_content(problem: Problem) -> dict[str, Any]:
    """Return the problem as the mapping that a problem file holds."""
    return {
        "budget": {problem.budget_unit: 5.0},
        "gpu_types": {gpu.name: {"usd_per_gpu_hour": gpu.usd_per_gpu_hour} for gpu in problem.gpu_types},
        "classes": [
            {
                "name": row.name,
                "arrivals_per_hour": row.arrivals_per_hour,
                "weight": row.weight,
                "startup_hours": row.startup_hours,
                "rescale_hours": row.rescale_hours,
                "phases": [
                    {
                        "size_gpu_hours": phase.size_gpu_hours,
                        "speedup": {name: as_form(curve) for name, curve in phase.speedups.items()},
                    }
                    for phase in row.phases
                ],
            }
            for row in problem.classes
        ],
    }


def as_form(curve: SpeedupCurve) -> dict[str, Any]:
    match curve:
        case Table():
            return {"table": dict(zip(curve.gpus, curve.speeds, strict=True))}
        case Amdahl():
            return {"amdahl": asdict(curve)}
        case PowerLaw():
            return {"power": asdict(curve)}
        case UniversalScalability():
            return {"usl": asdict(curve)}
    raise AssertionError(curve)


@given(problem=problems())
def test_a_problem_written_as_yaml_reads_back_equal(
    problem: Problem, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Writing a problem with PyYAML and reading it loses nothing."""
    path = tmp_path_factory.mktemp("round") / "problem.yaml"
    path.write_text(
        yaml.safe_dump(as_content(problem), allow_unicode=True, sort_keys=False), encoding="utf-8"
    )

    assert load_problem(path).problem == problem


@given(problem=problems())
def test_a_document_without_a_file_is_checked_like_one(problem: Problem) -> None:
    """Its errors give no line."""
    document = Document(name="made", content=as_content(problem))

    assert parse_problem(document).problem == problem
    document.content["classes"][0]["weight"] = -1.0
    with pytest.raises(InputError, match=r"^made: classes\[.*\.weight must be more than zero; got -1\.0$"):
        parse_problem(document)


KEYS = ["budget", "gpus", "gpu_types", "classes", "name", "phases", "size_gpu_hours", "speedup", "table"]


@given(
    content=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(KEYS) | st.integers(),
                inner,
                max_size=4,
            )
        ),
        max_leaves=20,
    )
)
def test_any_document_is_a_problem_or_an_input_error(content: object) -> None:
    """No content raises another exception."""
    with contextlib.suppress(InputError):
        assert parse_problem(Document(name="odd", content=content)).problem.classes


def test_a_thousand_classes_of_64_widths_are_read() -> None:
    """Table entries are parsed by hand, for speed."""
    table = {width: width**0.9 for width in range(1, 65)}
    phases = [{"size_gpu_hours": 1.0, "speedup": {"table": table}}]
    rows = [{"name": f"c{i}", "arrivals_per_hour": 1.0, "phases": phases} for i in range(1000)]

    assert len(parse_problem(Document(name="many", content={"classes": rows})).problem.classes) == 1000


def test_errors_have_a_line_in_yaml_json_and_toml() -> None:
    """The line is that of the wrong value."""
    for suffix in ("yaml", "json", "toml"):
        document = read_document(PROBLEMS / f"one-type.{suffix}")
        document.content["classes"][1]["phases"][0]["size_gpu_hours"] = 0
        with pytest.raises(InputError) as caught:
            parse_problem(document)
        lines = (PROBLEMS / f"one-type.{suffix}").read_text(encoding="utf-8").splitlines()
        assert caught.value.line is not None
        assert re.search(r"size_gpu_hours\W+1\.5", lines[caught.value.line - 1]), suffix
