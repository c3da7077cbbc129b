"""Classes and machines in, a policy out; the tick's view of nodes."""
