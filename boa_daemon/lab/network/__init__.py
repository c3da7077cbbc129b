"""The paper's experiment: an iteration-level simulator of training jobs that share network cards."""
