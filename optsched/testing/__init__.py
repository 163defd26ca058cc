"""What plug-ins are tested with; needs pytest."""
