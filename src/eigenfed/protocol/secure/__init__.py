"""Secure aggregation: the coordinator learns a sum and no single reply."""
