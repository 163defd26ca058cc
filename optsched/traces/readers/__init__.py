"""Readers of public traces, one file a format."""
