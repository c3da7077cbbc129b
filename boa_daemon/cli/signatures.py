"""The options of a verb without what the verb works with, for ``boa VERB --help``.

Importing `boa plan` brings numpy, scipy and the simulator, which its help does not need. `signature` reads
the file of the verb and executes only what the declaration of its options needs: the names in its decorators,
annotations and defaults, and what these names need in turn, through the imports between our files. Functions
that are only handed on, such as the verb itself and its callbacks, are left empty. So what comes back can
print its help and must not be called.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import resolve_name
from pathlib import Path
from types import CodeType
from typing import Any

import boa_daemon

_OURS = ("boa_daemon", "policies")
"""Packages that are read in this way; a module that is loaded already is taken as it is."""
_FOLDER = Path(boa_daemon.__file__).parent.parent
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def signature(module: str, name: str) -> Any:
    """Return the function or `typer.Typer` of this name, good for its help alone."""
    return _Declarations.of(module).verb(name)


class _Declarations:
    """The declarations of one file, each executed when it is first needed."""

    def __init__(self, module: str, path: Path) -> None:
        self._module, self._path = module, str(path)
        self._statements = ast.parse(path.read_text(encoding="utf-8")).body
        self._by_name = {name: statement for statement in self._statements for name in _defined(statement)}
        # Dataclasses look up the module of their class among the loaded ones.
        self._globals: dict[str, Any] = {"__name__": __name__, "__file__": self._path}
        self._begun: set[str] = set()
        self._verb = ""

    @classmethod
    @cache
    def of(cls, module: str) -> _Declarations:
        """Return the declarations of a module, read once."""
        path = _FOLDER.joinpath(*module.split("."))
        return cls(module, path / "__init__.py" if path.is_dir() else path.with_suffix(".py"))

    def verb(self, name: str) -> Any:
        """Return a verb, or a group with its commands: the functions that it decorates or is called with."""
        self._verb = name
        if not isinstance(self._by_name[name], _Function):
            for statement in self._statements:
                if isinstance(statement, _Function) and statement.decorator_list:
                    self._declare(statement.name, is_called=False)
                elif isinstance(statement, ast.Expr) and name in _names(statement):
                    self._declare_verbs_in(statement)
                    self._execute(statement)
        return self.value(name, is_called=False)

    def _declare_verbs_in(self, statement: ast.Expr) -> None:
        """Declare the verbs of other files that a statement adds to a group: ``app.command("fit")(fit)``."""
        for part in statement.value.args if isinstance(statement.value, ast.Call) else ():
            place = self._by_name.get(part.id) if isinstance(part, ast.Name) else None
            if isinstance(place, ast.ImportFrom) and isinstance(part, ast.Name):
                self._globals[part.id] = self._imported(place, part.id, is_called=False, is_verb=True)

    def value(self, name: str, *, is_called: bool) -> Any:
        """Return what a name stands for; a function is empty unless it is called.

        Raises:
            AttributeError: when the module has no such name.
        """
        self._declare(name, is_called=is_called)
        if name not in self._globals:
            # A module of a package, or a name that a package imports on first use.
            return getattr(__import__(self._module, fromlist=[name]), name)
        return self._globals[name]

    def _declare(self, name: str, *, is_called: bool) -> None:
        """Execute what defines a name, after what this needs; names of Python itself need nothing."""
        statement = self._by_name.get(name)
        if statement is None or name in self._globals or name in self._begun:
            return
        self._begun.add(name)
        if isinstance(statement, ast.ImportFrom):
            self._globals[name] = self._imported(statement, name, is_called=is_called)
            return
        if isinstance(statement, _Function) and not is_called:
            statement = _emptied(statement, is_verb=name == self._verb or bool(statement.decorator_list))
        self._execute(statement)

    def _execute(self, statement: ast.stmt) -> None:
        """Execute a statement after what it needs."""
        calls = [part.func for part in ast.walk(statement) if isinstance(part, ast.Call)]
        if isinstance(statement, ast.ClassDef):
            calls += statement.decorator_list
        called = {function.id for function in calls if isinstance(function, ast.Name)}
        for needed in _names(statement):
            self._declare(needed, is_called=needed in called)
        exec(_compiled(statement, self._path), self._globals)

    def _imported(
        self, statement: ast.ImportFrom, name: str, *, is_called: bool, is_verb: bool = False
    ) -> Any:
        """Return what an import binds to a name."""
        module = resolve_name(
            "." * statement.level + (statement.module or ""), self._module.rpartition(".")[0]
        )
        [there] = [alias.name for alias in statement.names if name in (alias.asname, alias.name)]
        if module.partition(".")[0] in _OURS and module not in sys.modules:
            other = _Declarations.of(module)
            return other.verb(there) if is_verb else other.value(there, is_called=is_called)
        return getattr(__import__(module, fromlist=[there]), there)


def _defined(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement at the top of a file defines."""
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield statement.name
        case ast.Assign():
            parts = (part for target in statement.targets for part in ast.walk(target))
            yield from (part.id for part in parts if isinstance(part, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.Import():
            yield from (alias.asname or alias.name.partition(".")[0] for alias in statement.names)
        case ast.ImportFrom() if statement.module != "__future__":
            yield from (alias.asname or alias.name for alias in statement.names)
        case ast.If():
            yield from (name for part in statement.body for name in _defined(part))
        case _:
            pass


def _emptied(function: _Function, *, is_verb: bool) -> _Function:
    """Return a function with nothing to do; a verb keeps its docstring and the types of its arguments."""
    fields = {field: getattr(function, field) for field in function._fields}
    if not is_verb:
        arguments = {field: getattr(function.args, field) for field in function.args._fields}
        for field, value in arguments.items():
            if field.endswith("args"):
                several = isinstance(value, list)
                plain = [
                    ast.arg(arg=each.arg) for each in (value if several else [value]) if each is not None
                ]
                arguments[field] = plain if several else next(iter(plain), None)
        fields |= {"args": ast.arguments(**arguments), "returns": None}
    has_docstring = is_verb and ast.get_docstring(function) is not None
    fields["body"] = function.body[:1] if has_docstring else [ast.Pass()]
    return ast.fix_missing_locations(ast.copy_location(type(function)(**fields), function))


def _names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement reads; the annotations of classes and variables stay text.

    The body of a lambda reads its names when it is called.
    """
    if isinstance(node, ast.Name):
        yield node.id
    for field, part in ast.iter_fields(node):
        is_later = isinstance(node, ast.Lambda) and field == "body"
        if is_later or (field == "annotation" and isinstance(node, ast.AnnAssign)):
            continue
        for each in part if isinstance(part, list) else [part]:
            if isinstance(each, ast.AST):
                yield from _names(each)


def _compiled(statement: ast.stmt, path: str) -> CodeType:
    """Return one statement as code whose annotations stay text, as in the files."""
    future = ast.parse("from __future__ import annotations").body
    return compile(ast.Module(body=[*future, statement], type_ignores=[]), path, "exec")
