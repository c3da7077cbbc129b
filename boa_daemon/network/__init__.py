"""The paper's experiment: training jobs that iterate and share network cards, iteration by iteration."""
