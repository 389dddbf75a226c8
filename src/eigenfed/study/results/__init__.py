"""The result of a run on disk.

- `result_folder`: write and read result folders.
- `csv_tables`: loadings, variances and scores as csv.
- `plink_files`: results of genotypes in the files of plink.
- `earlier_results`: facts of earlier releases with the keys of this one.
- `json_types`: values as the types that JSON has.
- `facts`: the facts about a fitted estimator in ``result.json``.
- `run_log`: the requests and replies of a run in ``run.jsonl``.
"""
