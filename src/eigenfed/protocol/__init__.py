"""Federated protocols: both halves of every method, and the gate of a site.

- `core`: calls, transports and the loop that runs a protocol; plain sums over sites.
- `messages`: messages as bytes, typed content, refusal codes.
- `operations`: operations of a site, their requests, and what a site knows about a run.
- `study`: what is computed, as approved by the sites and signed by the coordinator.
- `cost_rates`: how long the steps of methods take.
- `method`: the base class and cost model; `method_registry`: all methods, and the choice of "auto".
- `component_count`: how many components a study computes: a number, or the rule that gives one.
- `pca`, `decomposition`: the complete protocol of a study, and its result types.
- `gate`: the gate of a site, which every request and every reply passes.
- `exact`, `private`, `published`: methods without noise, with proven noise, and from the papers.
- `secure`: secure aggregation.
"""
