"""Supervises the command of an attempt on its node, for every executor; standard library only."""
