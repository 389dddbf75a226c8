"""A study from its files to its results.

- `config`: read, check and write study and site files.
- `rehearsal`: run a study in one process, from its site files.
- `scores`: project the rows of a file, and write scores back.
- `demo_data`: simulated records for the demo.
- `demo_genotypes`: simulated genotypes for the demo.
- `planning`: forecast the cost and accuracy of a study.
- `results`: result folders.
- `network`: keys, rosters and approvals of coordinator and sites.
- `audits`: attacks on a configuration.
"""
