"""Attacks that run against a whole configuration and say what an attacker gets."""
