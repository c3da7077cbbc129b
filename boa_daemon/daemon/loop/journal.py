"""Log actions: a sentence for people, and the action's id for machines."""

from __future__ import annotations

import logging

_LOG = logging.getLogger("boa.actions")


class Journal:
    """Implements `Telemetry` with the log: one line for each action and its result."""

    def say(self, sentence: str, **numbers: float | str) -> None:
        """Log one sentence; in JSON logs the numbers are keys of the line."""
        _LOG.info("%s", sentence, extra=numbers)
