"""Published policies, one file a system."""
