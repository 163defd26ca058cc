"""Studies: many command lines over many instances, resumable, gathered into tables and figures."""
