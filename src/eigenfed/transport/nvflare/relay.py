"""Part of the relay."""
