"""Textbook algorithms and exhaustive search: what the engine's answers are checked against."""
