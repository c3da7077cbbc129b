"""Files that people write, read strictly: problems, jobs, prices, speed-ups, the catalogue."""
