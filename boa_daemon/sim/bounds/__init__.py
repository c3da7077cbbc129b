"""Lower bounds on the job times of a simulation that no policy can beat."""
