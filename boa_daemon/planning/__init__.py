"""Plans, curves, what-if comparisons, commitment advice and plots for people who plan a budget."""
