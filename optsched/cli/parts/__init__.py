"""What several commands share: arguments, output, tables and progress."""
