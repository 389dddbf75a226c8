"""Attacks on a site's own configuration, from files to a page in words."""
