"""The gate of a site: every request enters and every reply leaves through it.

- `gate`: `Site`, which answers messages in a fixed list of steps.
- `admission`: whether a site takes part in a study.
- `script`: which operations may come, in which order and how often.
- `run_state`: what a site remembers about an open run.
- `records`: the ledger of a site, and its log of what left.
"""
