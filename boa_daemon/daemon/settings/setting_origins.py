"""The origin of each setting's value: a file, the environment, or the default."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from boa_daemon.daemon.settings.named_socket import setting_files
from boa_daemon.daemon.settings.setting_layers import LoadedSettings, from_environment, origin_of
from boa_daemon.errors import InputError
from boa_daemon.inputs.document_file import read_document

DEFAULT, ENVIRONMENT = "default", "environment"


def locate_error(error: InputError, explicit: Path | None) -> InputError:
    """Return an error about a setting with the file and line that set it, unless it names a file already."""
    if error.file is not None or not error.setting:
        return error
    documents = [read_document(path) for path in setting_files(explicit)]
    if (found := origin_of(error.setting, documents)) is None:
        return error
    file, line = found
    return type(error)(error.problem, file=file, line=line, hint=error.hint)


def settings_with_origins(
    loaded: LoadedSettings, *, environment: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """Return section, key, value and origin of every setting, in the order of the reference."""
    words = os.environ if environment is None else environment
    document = loaded.settings.model_dump(mode="json")
    origins: dict[tuple[str, str], str] = {}
    for path, read in zip(loaded.files, loaded.documents, strict=True):
        found: Any = read.content
        origins |= {(section, key): str(path) for section, keys in found.items() for key in keys}
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
