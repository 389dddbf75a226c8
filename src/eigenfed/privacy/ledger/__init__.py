"""The ledger of a site: an append-only, hash-chained record in one SQLite file.

- `ledger`: `Ledger`, the entry point: budgets, spends, replies and totals.
- `ledger_interface`: the interface that a gate uses, and `NullLedger` for sites without a ledger.
- `ledger_state`: the state that follows from events: rounds and totals.
- `entries`: values in events (reply keys, budgets, declarations), and refusals.
- `events`: the kinds of events and their bytes.
- `event_log`: appending, reading and verifying events.
- `run_memory`: requests and secrets of open runs, for a restart of the site.
- `storage`: the SQLite file and the hash chain.
- `witness`: the head file, which reveals a rolled-back or replaced ledger.
"""
