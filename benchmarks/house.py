"""The structure of the code in figures: modules and lines by package folder, imports, and import cycles.

A cycle is a set of modules (or package folders) each of which imports every other directly or indirectly.
Imports for types and imports inside functions count. Run without arguments for a table:

    $ python benchmarks/house.py
    $ python benchmarks/house.py --json

`--places REVISION...` counts, in each revision of the repository, the source files that name an existing
member of a kind: what one more such member has to be written into. Tests, docs and data are not counted.
In brackets stand those that name it in their code, and not only in docstrings and comments.

    $ python benchmarks/house.py --places v0.1 HEAD
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("policies", "boa_daemon")
LONGEST = 300
"""Files above this many lines are named."""


EXAMPLES = {
    "a job key (memory_gb)": "memory_gb",
    "a job key (keep_checkpoints)": "keep_checkpoints",
    "a verb of the daemon (resize)": "resize",
    "a reason to wait (fleet-full)": "fleet-full",
    "an AWS setting (nat_gb_per_hour)": "nat_gb_per_hour",
    "a cloud (FileCloud)": "FileCloud",
    "a policy (TIRESIAS)": "TIRESIAS",
}
"""Example changes, and the word by which an existing member of that kind is found."""


def places(word: str, revision: str) -> int:
    """Return the number of source files that name a word in a revision.

    Raises:
        subprocess.CalledProcessError: when there is no such revision.
    """
    # `git grep` ends with 1 where nothing is found.
    asked = ["git", "grep", "-lwF", "-e", word, revision, "--", *(f"{each}/*.py" for each in PACKAGES)]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode > 1:
        done.check_returncode()
    return sum(f":{PACKAGES[1]}/testing/" not in line for line in done.stdout.splitlines())


def places_in_code(word: str, revision: str) -> int:
    """Return the number of those files that name the word outside of docstrings and comments.

    Raises:
        subprocess.CalledProcessError: when there is no such revision.
    """
    asked = ["git", "grep", "-lwF", "-e", word, revision, "--", *(f"{each}/*.py" for each in PACKAGES)]
    listed = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False).stdout.splitlines()
    files = [name for name in listed if f":{PACKAGES[1]}/testing/" not in name]
    texts = (
        subprocess.run(["git", "show", name], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in files
    )
    return sum(re.search(rf"\b{re.escape(word)}\b", code_of(text)) is not None for text in texts)


def code_of(text: str) -> str:
    """Return the code of a module without comments and without texts that are statements of their own."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            kept = [each for each in body if not _is_text(each)]
            node.body = kept or [ast.Pass()]  # type: ignore[attr-defined]
    return ast.unparse(tree)


def _is_text(node: ast.AST) -> bool:
    """Return whether a statement is only a text, as docstrings are."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def modules() -> dict[str, Path]:
    """Return every module of the two packages by its dotted name."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def room_of(path: Path) -> str:
    """Return the package folder of a file, or the package for a file at its root."""
    parts = path.relative_to(ROOT).parts
    return parts[0] if len(parts) == 2 else "/".join(parts[:2])


def imports(files: Mapping[str, Path]) -> dict[str, set[str]]:
    """Return the imports of each module among these modules, wherever they stand in the file."""
    found: dict[str, set[str]] = {}
    for name, path in files.items():
        wanted = found.setdefault(name, set())
        for node in _statements(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                wanted.update(alias.name for alias in node.names if alias.name in files)
            elif isinstance(node, ast.ImportFrom):
                source = node.module or ""
                for alias in node.names:
                    module = f"{source}.{alias.name}"
                    wanted.update({module if module in files else source} & files.keys())
        wanted.discard(name)
    return found


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements below a node, without looking into expressions: most of a module are those."""
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        for each in getattr(node, field, ()):
            yield each
            yield from _statements(each)


def circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return the cycles of a graph: its strongly connected components of two members or more."""
    reached = {start: _reached(graph, start) for start in graph}
    found, seen = [], set()
    for start in sorted(graph):
        if start not in seen and start in reached[start]:
            circle = sorted(other for other in reached[start] if start in reached.get(other, ()))
            seen.update(circle)
            found.append(circle)
    return found


def _reached(graph: Mapping[str, Iterable[str]], start: str) -> set[str]:
    """Return all members that can be reached in one step or more."""
    found: set[str] = set()
    rest = list(graph[start])
    while rest:
        name = rest.pop()
        if name not in found:
            found.add(name)
            rest.extend(graph.get(name, ()))
    return found


def between_rooms(files: Mapping[str, Path], graph: Mapping[str, Iterable[str]]) -> dict[str, set[str]]:
    """Return the imports between package folders; a module at a package's root counts by itself."""

    def room(name: str) -> str:
        own = room_of(files[name])
        return name if own in PACKAGES else own

    found: dict[str, set[str]] = {room(name): set() for name in files}
    for name, wanted in graph.items():
        found[room(name)].update(room(other) for other in wanted)
    for name, wanted in found.items():
        wanted.discard(name)
    return found


def lines_of(path: Path) -> int:
    """Return the lines of a file."""
    return len(path.read_text(encoding="utf-8").splitlines())


def main() -> None:
    """Print the figures, as a table or as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--places", nargs="+", metavar="REVISION", help="count places per example change")
    options = parser.parse_args()
    as_json = options.json
    if options.places:
        print(f"{'to add':34}" + "".join(f" {revision:>10}" for revision in options.places))
        for what, word in EXAMPLES.items():
            counts = [
                f"{places(word, revision)} ({places_in_code(word, revision)})" for revision in options.places
            ]
            print(f"{what:34}" + "".join(f" {count:>10}" for count in counts))
        return

    files = modules()
    graph = imports(files)
    rooms: dict[str, list[int]] = {}
    for path in files.values():
        rooms.setdefault(room_of(path), []).append(lines_of(path))
    tests = sum(map(lines_of, (ROOT / "tests").rglob("*.py")))
    file_circles, room_circles = circles(graph), circles(between_rooms(files, graph))
    document = {
        "rooms": {
            room: {"modules": len(all_lines), "lines": sum(all_lines)} for room, all_lines in rooms.items()
        },
        "modules": len(files),
        "lines": sum(map(sum, rooms.values())),
        "test_lines": tests,
        "longest": {name: lines_of(path) for name, path in files.items() if lines_of(path) > LONGEST},
        "circles_of_files": file_circles,
        "circles_of_packages": room_circles,
    }
    if as_json:
        print(json.dumps(document, indent=2))
        return
    print(f"{'room':24} {'modules':>7} {'lines':>6}")
    for room, all_lines in rooms.items():
        print(f"{room:24} {len(all_lines):7} {sum(all_lines):6}")
    print(f"{'both packages':24} {len(files):7} {document['lines']:6}")
    print(f"{'tests':24} {'':7} {tests:6}")
    print(f"circles of files: {len(file_circles)}; of packages: {len(room_circles)}")
    for circle in (*file_circles, *room_circles):
        print("  " + " <-> ".join(circle))
    print(f"files over {LONGEST} lines: {len(document['longest'])}")


if __name__ == "__main__":
    main()
