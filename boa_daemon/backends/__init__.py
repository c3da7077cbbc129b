"""Clouds that rent nodes: one module or package per cloud."""
