"""Traces of arrivals: read ours strictly, and turn public ones into ours."""
