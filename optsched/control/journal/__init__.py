"""The journal of a controller, the state rebuilt from it, and how long it is kept."""
