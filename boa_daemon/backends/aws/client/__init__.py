"""Calls to AWS: signed, counted and limited, with their errors; names of our resources."""
