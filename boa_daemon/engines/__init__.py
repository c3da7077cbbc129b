"""Engines run jobs on nodes, generation by generation; each implements `boa_daemon.tick.ports.Runner`."""
