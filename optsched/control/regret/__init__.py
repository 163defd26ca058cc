"""Looking back at what a controller did, from its journal alone."""
