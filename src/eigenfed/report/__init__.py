"""The report of a result: HTML pages, and the same content for programs.

- `html`: write the pages of a result folder (`write_pages`).
- `from_python`: write the report of a fitted estimator (`eigenfed.write_report`).
- `export`: ``run.json``, and custom content for MultiQC.
- `model`: the content of a report, read from the result folder (`read_report`).
- `site_scores`: scores of a site, and what only its own page shows.
- `fact_rules`: validation of ``result.json`` and ``run.jsonl``.
- `verdicts`: the verdicts on the first screen; `accuracy_verdict`: how accurate the components are.
- `sections`: what was computed, results and accuracy.
- `prepared_section`: how the rows were prepared.
- `sampling_section`: components above noise, and turns in another sample.
- `site_sections`: differences between sites, and rows as points.
- `egress`: what left each site, and privacy.
- `repeat`: commands and Python code that repeat the run.
- `live_page`, `live_run`, `live_site`: pages that change while a command runs.
- `page_template`: pages as HTML.
- `page_elements`: the parts of a page, before they become HTML.
- `figures`: figures as SVG.
- `score_plot`: rows as points.
- `svg`: SVG elements, scales and ticks.
- `wording`: numbers and lists as text.
"""
