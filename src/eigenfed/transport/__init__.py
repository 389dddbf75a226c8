"""Carries asks and replies. The only place that knows an engine."""
