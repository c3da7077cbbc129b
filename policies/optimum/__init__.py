"""The exact answer: the widths that make jobs wait least for a budget, and the curve over all budgets."""
