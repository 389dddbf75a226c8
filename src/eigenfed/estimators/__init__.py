"""What data scientists touch: estimators with the contract of scikit-learn."""
