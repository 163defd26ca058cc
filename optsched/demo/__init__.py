"""The demonstration: a small emulated cluster on which real processes are started, preempted and
resumed."""
