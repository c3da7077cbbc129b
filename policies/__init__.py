"""What would be best?  The mathematics of renting and sharing GPUs.

Pure functions and frozen values; needs numpy and scipy alone, so it runs in a notebook.
"""
