"""Profiles that are measured: a command is run briefly, core counts are compared, and real runs are
learned from.

`probe` runs a command and measures it, `cores` finds how many cores it needs, `store` keeps
profiles with all their versions, `durations` tells how long a new job may take from those that have
ended.
"""
