"""What may leave a site: declarations, policy, and the meter of what has left already."""
