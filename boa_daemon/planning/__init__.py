"""Answers, curves and plots for people who plan a budget."""
