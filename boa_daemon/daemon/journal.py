"""What was done, in the log: a sentence for people, and the id of the action for machines."""

from __future__ import annotations

import logging

_LOG = logging.getLogger("boa.actions")


class Journal:
    """Implements `Telemetry` by the log: a line for each action, with what became of it."""

    def say(self, sentence: str, **numbers: float | str) -> None:
        """Log one sentence; the numbers are keys of the line where lines are JSON."""
        _LOG.info("%s", sentence, extra=numbers)
