"""The long-running daemon around the tick: loop, planner, API service, views of jobs and nodes."""
