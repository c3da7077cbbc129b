"""Policies side by side on the same jobs and the same money."""
