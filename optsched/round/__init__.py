"""The scheduling round: which jobs run now, where, with how many cores, and who is preempted for
them."""
