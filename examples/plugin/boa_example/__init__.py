"""A package outside BOA that adds a policy, a placer, a trace format, a cloud, an engine and a notifier."""
