"""Forecast the cost and accuracy of a study before it runs.

- `plan`: questions from study files, and verdicts in words.
- `forecast`: rounds, bytes, memory, time, leakage and accuracy of a study.
- `assumed_spectra`: the eigenvalues that a forecast assumes.
- `trial_runs`: model runs of the protocol, extrapolated to the real size.
- `variant_traffic`: products of neighbouring variants.
- `traffic`: the messages of a model run, measured.
- `noise_forecast`: what noise leaves of the components.
"""
