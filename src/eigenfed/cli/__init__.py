"""The command line. Modules here import nothing slow until a command runs.

- `main`: the program and its commands.
- `init_command`: ``eigenfed init``: write commented study and site files.
- `plan_command`: ``eigenfed plan``: forecast the cost and accuracy of a study.
- `fit_command`: ``eigenfed fit``: PCA over files as sites, or a rehearsal of a study.
- `result_commands`: ``eigenfed project`` and ``eigenfed report``: commands on a result.
- `cache_command`: ``eigenfed cache``: show or remove parsed copies.
- `stream_command`: ``eigenfed stream``: summarize rows that are read once.
- `merge_command`: ``eigenfed merge``: combine summaries.
- `network_command`: ``eigenfed network``: exchange keys between a coordinator and its sites.
- `site_command`, `site_run`: ``eigenfed site``: a site that approves studies and answers them.
- `coordinate_command`, `coordination`: ``eigenfed coordinate``: run a study with sites on other
  machines (`study_run`), or merge summaries of their streams (`collect_run`).
- `drop_command`: ``eigenfed drop``: what the files of a drop folder hold.
- `ledger_command`: ``eigenfed ledger``: create, show, verify and unblock a site's ledger.
- `audit_command`: ``eigenfed audit``: attack a configuration.
- `demo_command`: ``eigenfed demo``: a complete study on generated data.
- `options`, `input_options`: options that several commands share.
- `option_types`: types of their values.
- `table_notes`: what a fit points out about its files.
- `output`: results, notes, error messages and exit codes.
- `progress`: progress on a terminal.
- `stop_signals`: commands that stay up until they are stopped.
- `watching`, `watch_server`: live pages of a run and of a site, and their server.
- `tables`: results as text.
- `result_writer`: the output of ``eigenfed fit`` and ``coordinate``.
- `typed_command`: the command line of a running command, for reports.
"""
