"""Traces of arrivals: a strict reader of BOA's format, and importers of public traces."""
