"""The mathematics of renting and sharing GPUs: which jobs get how many GPUs of which type.

Pure functions and frozen values. The package needs only numpy and scipy, so it runs in a notebook.
"""
