"""Attacks that run against a whole configuration and report what an attacker gets."""
