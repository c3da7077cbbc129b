"""Small pure tasks, run in processes or on Ray, whose results are kept."""
