"""From samples of work to speeds, arrival rates and sizes of each class."""
