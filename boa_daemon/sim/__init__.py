"""The simulator: a simulated world, run by the daemon's own program, with arrivals from a trace."""
