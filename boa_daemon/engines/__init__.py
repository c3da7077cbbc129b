"""Engines run the generations of jobs on nodes; each implements `boa_daemon.tick.facts.ports.Runner`."""
