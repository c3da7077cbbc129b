"""``nox`` does what CI does, one session at a time: tests, lint, types, contracts, benchmarks."""

import nox

nox.options.sessions = ["tests", "lint", "types", "contracts"]


@nox.session
def tests(session: nox.Session) -> None:
    """The whole suite, on every core, the exhaustive tests too."""
    session.install("-e", ".[dev]")
    session.run("pytest", "-q", "-n", "auto", "-m", "", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Style and layout."""
    session.install("ruff>=0.8")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """mypy, strict."""
    session.install("-e", ".[dev]")
    session.run("mypy")


@nox.session
def contracts(session: nox.Session) -> None:
    """Which package may import which."""
    session.install("-e", ".[dev]")
    session.run("lint-imports")


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation as a site in build/site; a broken link is an error."""
    session.install("zensical>=0.0.70")
    session.run("zensical", "build", "--strict", "-f", "mkdocs.yml")


@nox.session
def coverage(session: nox.Session) -> None:
    """Branch coverage of what decides by its own tests; a line that is left out is named."""
    session.install("-e", ".[dev]")
    session.run("coverage", "run", "-m", "pytest", "-q", "-m", "", "tests/policies", "tests/boa_daemon/tick")
    session.run("coverage", "report")


@nox.session
def mutants(session: nox.Session) -> None:
    """Mutation testing of what decides: a draw of changes, or ``nox -s mutants -- MODULE``."""
    session.install("-e", ".[dev]")
    session.run("python", "benchmarks/mutants.py", *(session.posargs or ["--draw", "100"]))


@nox.session
def benchmarks(session: nox.Session) -> None:
    """The quick form of every benchmark."""
    session.install("-e", ".[test]")
    for script in ("solver", "network", "ada_srsf", "links", "gate"):
        session.run("python", f"benchmarks/{script}.py", "--quick")
