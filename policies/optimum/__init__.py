"""Exact solvers: the widths with the least completion times for a budget, and the curve over all budgets."""
