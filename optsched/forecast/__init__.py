"""When jobs will start and end, and how sure that is."""
