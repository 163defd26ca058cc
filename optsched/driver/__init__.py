"""What drives rounds, in virtual time and on real nodes alike."""
