"""Strict readers of files that people write: problems, jobs, prices, speed-ups, the catalogue."""
