"""The result of a run on disk.

- `result_folder`: write and read result folders.
- `facts`: the facts about a fitted estimator in ``result.json``.
- `run_log`: the requests and replies of a run in ``run.jsonl``.
"""
