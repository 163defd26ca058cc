"""Why a live job is where it is, and what would change that."""
