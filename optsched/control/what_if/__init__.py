"""What would happen to the present jobs if something were otherwise."""
