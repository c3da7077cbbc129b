"""Decisions at each tick: pacing of the spend, prices of whole nodes, lending, sharing scarce room."""
