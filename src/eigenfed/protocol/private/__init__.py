"""Differentially private PCA: the coordinator's half, the site's half and their budget."""
