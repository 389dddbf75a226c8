"""Exact methods: both halves of each, and the certificate of what they find."""
