"""Trace formats that become instances, one file a format, and the generators of synthetic ones."""
