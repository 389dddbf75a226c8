"""Principal components of data that cannot be pooled."""
