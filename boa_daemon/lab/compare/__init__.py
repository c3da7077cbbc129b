"""Comparisons and studies of policies on the same jobs and the same money."""
