"""What surrounds the tick for months: the loop, the service, the planner, views of jobs and nodes."""
