"""Backends rent nodes; each implements `boa_daemon.ports.Cloud`."""
