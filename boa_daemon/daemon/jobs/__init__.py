"""The tick's view of jobs."""
