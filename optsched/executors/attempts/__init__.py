"""What is kept and known of attempts, for every executor."""
