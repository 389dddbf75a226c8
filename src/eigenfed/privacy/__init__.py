"""Privacy: what may leave a site, what it reveals, and what it costs.

Modules and packages:

- `policy`: the limits that a site enforces against every coordinator.
- `release`: declarations of what a reply reveals and how it may leave.
- `leakage`: the meter of what exact replies reveal about a scatter matrix.
- `meter_reading`: the same for replies that are well apart, from small matrices alone.
- `revealed_basis`: orthonormal bases of revealed directions.
- `revealed_products`: what a reply reveals, as the meter counts it.
- `privacy_terms`: the parameters of `Privacy`, and their rules.
- `guarantee`: the `Statement` of a run's guarantee.
- `published_claims`: base of the published mechanisms: their claims, and what is proven.
- `dp`: differential privacy: accounting, sensitivity, clipping and noise.
- `ledger`: the durable record of releases, privacy spends and budgets.
- `secagg`: building blocks of secure aggregation.
"""
