"""Verbs that answer before anything is rented."""
