"""The origin of each setting's value: a file, the environment, or the default."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from boa_daemon.daemon.setting_layers import from_environment, load_settings, setting_files
from boa_daemon.errors import InputError
from boa_daemon.inputs.document_file import read_document

_KEY, _QUOTED = re.compile(r"\[(\w+)\] (\w+)"), re.compile(r"'([^']+)'")
DEFAULT, ENVIRONMENT = "default", "environment"


def locate_error(error: InputError, explicit: Path | None) -> InputError:
    """Return an error about a setting with the file and line that set it, unless it names a file already.

    The line is found by ``[section] key`` at the beginning of the error, else by the value that it quotes.
    """
    named, quoted = _KEY.match(error.problem), _QUOTED.search(error.problem)
    for path in [] if error.file is not None else reversed(setting_files(explicit)):
        document = read_document(path)
        lines = document.text.splitlines()
        line = None
        if named is not None and named[2] in document.content.get(named[1], {}):
            line = document.line_of((named[1], named[2]))
        elif quoted is not None:
            found = (number for number, text in enumerate(lines, start=1) if f'"{quoted[1]}"' in text)
            line = next(found, None)
        if line is not None:
            return type(error)(error.problem, file=path, line=line, hint=error.hint)
    return error


def settings_with_origins(
    explicit: Path | None = None, *, environment: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """Return section, key, value and origin of every setting, in the order of the reference.

    Raises:
        InputError: when the settings are wrong.
    """
    words = os.environ if environment is None else environment
    document = load_settings(explicit, environment=words).settings.model_dump(mode="json")
    origins: dict[tuple[str, str], str] = {}
    for path in setting_files(explicit):
        content = read_document(path).content
        origins |= {(section, key): str(path) for section, keys in content.items() for key in keys}
    for section, keys in from_environment(words).items():
        for key in keys:
            origins[section, key] = f"{ENVIRONMENT}: BOA_{section.upper()}_{key.upper()}"
    return [
        {
            "section": section,
            "key": key,
            "value": value,
            "origin": origins.get((section, key), DEFAULT),
        }
        for section, keys in document.items()
        for key, value in keys.items()
    ]
