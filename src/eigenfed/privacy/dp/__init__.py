"""Differential privacy: accounting, sensitivity, clipping and noise."""
