"""Schedules of whole instances: the integer problem, list schedules and price bounds."""
