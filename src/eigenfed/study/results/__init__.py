"""The result of a run on disk.

- `result_folder`: write and read result folders.
- `csv_tables`: loadings, variances and scores as csv.
- `facts`: the facts about a fitted estimator in ``result.json``.
- `run_log`: the requests and replies of a run in ``run.jsonl``.
"""
