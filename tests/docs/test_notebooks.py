"""The notebooks of `examples/` run and print the output that is saved in them."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def cells_of(notebook: Path) -> list[dict[str, Any]]:
    """Return the cells with code, in order."""
    document = json.loads(notebook.read_text(encoding="utf-8"))
    return [cell for cell in document["cells"] if cell["cell_type"] == "code"]


def printed(cell: dict[str, Any]) -> str:
    """Return what a cell printed when the notebook was saved."""
    return "".join("".join(output["text"]) for output in cell["outputs"] if output["output_type"] == "stream")


@pytest.mark.parametrize(
    "notebook",
    [
        pytest.param(file, id=file.stem, marks=pytest.mark.exhaustive if "compare" in file.stem else ())
        for file in NOTEBOOKS
    ],
)
def test_a_notebook_prints_what_is_saved_in_it(notebook: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells run in order in one namespace; after a wanted change, run the notebook in Jupyter and save it."""
    monkeypatch.chdir(ROOT)
    mpl.use("Agg")
    namespace: dict[str, Any] = {}
    for cell in cells_of(notebook):
        source = "\n".join(line for line in "".join(cell["source"]).splitlines() if not line.startswith("%"))
        screen = io.StringIO()
        with redirect_stdout(screen):
            exec(compile(source, notebook.name, "exec"), namespace)
        assert screen.getvalue() == printed(cell), source


def test_the_notebooks_were_saved_with_pictures_and_tables() -> None:
    """Every code cell of both notebooks was run, and the saved outputs hold images and HTML."""
    assert len(NOTEBOOKS) == 2
    for notebook in NOTEBOOKS:
        cells = cells_of(notebook)
        assert all(cell["execution_count"] for cell in cells)
        kinds = {kind for cell in cells for output in cell["outputs"] for kind in output.get("data", {})}
        assert {"image/png", "text/html"} <= kinds
