"""Carries requests and replies. The only place that knows an engine."""
