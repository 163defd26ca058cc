"""Policies of the Gavel scheduler (OSDI'20): shares of each GPU type by a program or a rule, given
out in rounds."""
