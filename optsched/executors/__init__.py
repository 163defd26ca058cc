"""What starts, stops and watches processes on nodes, one package a cluster manager, found by entry
point."""
