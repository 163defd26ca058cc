"""Tables and lists in files, read at once or line by line."""
