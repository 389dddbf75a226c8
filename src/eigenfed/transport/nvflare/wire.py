"""Bytes with a header on a Unix socket."""
