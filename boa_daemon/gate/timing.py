"""The link's constants, fitted to messages that were timed under the gate.

A message counts if the number of messages at once was constant from its start to its end. If some messages
were alone and some met others, all three constants are fitted (`policies.links.contention.fit_link`). If all
were alone, as under SRSF(1), only the seconds per byte are fitted, and the contention penalty keeps its
configured ratio to them.
"""

from __future__ import annotations

from collections import deque
from statistics import median

from policies.errors import InvalidProblem
from policies.links.contention import Link, LinkSample, fit_link

MOST_SAMPLES = 96
LEAST_SAMPLES = 24
SPREAD = 10.0
"""A fit is used only within this factor of the configured link; beyond it, something else was timed."""


class Timings:
    """The newest timing samples, and the link fitted to them."""

    def __init__(self, link: Link) -> None:
        self._configured = link
        self._samples: deque[LinkSample] = deque(maxlen=MOST_SAMPLES)
        self._fresh = 0
        self.link = link
        self.fitted_from = 0

    def add(self, *, messages_at_once: int, message_bytes: float, seconds: float) -> None:
        """Add one timed message."""
        if message_bytes > 0.0 and seconds > 0.0:
            self._samples.append(
                LinkSample(messages_at_once=messages_at_once, message_bytes=message_bytes, seconds=seconds)
            )
            self._fresh += 1

    def refit(self) -> bool:
        """Fit the link if enough messages were timed since the last fit; return whether it changed."""
        if self._fresh < LEAST_SAMPLES:
            return False
        self._fresh = 0
        link = self._fit()
        if not 1.0 / SPREAD < link.seconds_per_byte / self._configured.seconds_per_byte < SPREAD:
            return False
        self.link, self.fitted_from = link, len(self._samples)
        return True

    def _fit(self) -> Link:
        """Fit all three constants if the samples determine them, else only the speed."""
        try:
            return fit_link(list(self._samples)).link
        except InvalidProblem:
            old = self._configured
            paces = [
                (sample.seconds - old.latency_seconds) / (sample.messages_at_once * sample.message_bytes)
                for sample in self._samples
            ]
            slower = max(median(paces), 1e-3 * old.seconds_per_byte) / old.seconds_per_byte
            return Link(
                latency_seconds=old.latency_seconds,
                seconds_per_byte=old.seconds_per_byte * slower,
                contention_seconds_per_byte=old.contention_seconds_per_byte * slower,
            )
