"""Policies that BOA is compared with: baselines, and schedulers from the literature."""
