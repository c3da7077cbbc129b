"""Slurm's commands and formats, for the engine, the cloud and the programs that Slurm itself calls."""
