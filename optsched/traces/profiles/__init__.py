"""Measured profiles for jobs of traces that have none."""
