"""How much of a cluster's GPUs can be allocated when jobs come one by one and stay: engine, rules,
bound and check."""
