"""Another world, run by the same program: arrivals from a trace, nodes that boot, work at the speed held."""
