"""Pollux: goodput-driven allocation of elastic jobs."""
