"""The version of BOA; `pyproject.toml` must name the same one."""

__version__ = "0.1.0"
