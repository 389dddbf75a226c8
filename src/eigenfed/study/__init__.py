"""A study from its files to its results.

study_file, site_file  read and check study and site files
start                  write the files of a new study
- `rehearsal`: run a study in one process, from its site files.
- `scores`: project the rows of a file, and write scores back.
- `demo_data`: simulated records for the demo.
- `demo_genotypes`: simulated genotypes for the demo.
- `planning`: forecast the cost and accuracy of a study.
- `results`: result folders.
- `network`: keys, rosters and approvals of coordinator and sites.
- `audits`: attacks on a configuration.
"""
