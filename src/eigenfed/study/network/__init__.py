"""Keys, rosters and approvals: what a coordinator and its sites must agree on before they talk.

::

    coordinator                      site
    invite_sites  ── invitation ──>  accept_invitation       (site.key is made here)
    admit_sites  <── request ──────
                  ── roster ──────>  pin_roster
                                     approve_study           (nothing else is ever answered)

People compare the fingerprints of what they send each other by another way, such as the telephone.

- `key_files`: private keys, and fingerprints.
- `documents`: the JSON files that are exchanged, strict and signed.
- `roster_file`: who takes part, with their public keys.
- `invitations`: the invitation, the request to join, and the roster with its certificates.
- `network_folder`: the folder in which a coordinator or a site keeps them.
- `inviting`: the coordinator's steps of the exchange; `joining`: those of a site.
- `study_terms`: what a study asks of a site, in words, and what the site's policy refuses.
- `approvals`: the studies that a site has approved.
- `run_method`: the method of a run; `message_limits`: how long its messages can be.
- `engines`: how messages travel, at the coordinator and at a site.
- `coordinator_run`: a run of a study, at the coordinator.
- `summary_collection`: the coordinator of a study that merges streams, or a region.
- `site_service`: a site that answers the runs of approved studies.
- `stream_releases`: which summaries of its stream a site sends, and when.
- `results_sent`: the result that the sites get at the end.
- `network_facts`: what a network folder holds.
"""
