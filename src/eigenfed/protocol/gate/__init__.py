"""The gate of a site: every request enters and every reply leaves through it.

- `gate`: `Site`, which answers messages in a fixed list of steps.
- `admission`: whether a site takes part in a study.
- `script`: which operations may come, in which order and how often.
- `open_runs`: how runs are opened, found after a restart, and ended.
- `restart`: how the state of a run is computed again after a restart.
- `run_state`: what a site remembers about an open run.
- `leakage_limits`: what a reply may reveal, and what the meter counts of it.
- `records`: the ledger of a site, and its log of what left.
"""
