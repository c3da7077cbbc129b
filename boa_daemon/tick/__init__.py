"""The pure decision: the state of the cluster comes in, a plan and its actions come out."""
