"""Hadar and HadarE: gangs on mixes of GPU types, chosen round by round by primal-dual prices."""
