"""What a policy sees of a cluster and may do with it, in virtual time and on real nodes alike."""
