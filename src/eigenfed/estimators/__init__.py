"""Estimators with the contract of scikit-learn."""
