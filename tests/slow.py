"""Tests that `make quick` leaves out: repeated or heavy ones, by the file that they are in.

Coverage is not measured in them, with some exceptions. A file without names is left out whole.
Names are those of functions, with all their parameters.
"""

SLOW: dict[str, tuple[str, ...]] = {
    "docs/choose.md": (),
    "docs/privacy.md": (),
    "docs/running.md": (),
    "docs/streaming.md": (),
    "src/eigenfed/study/planning/noise_forecast.py": (),
    "src/eigenfed/transport/nvflare/launch.py": (),
    "src/eigenfed/transport/nvflare/relay.py": (),
    "tests/audit/test_epsilon.py": (),
    "tests/audit/test_hostile_coordinator.py": (),
    "tests/audit/test_membership.py": (),
    "tests/audit/test_reconstruct.py": (
        "test_below_full_rank_the_answers_are_kept_and_the_rest_is_zero",
        "test_mnist_is_nearly_given_away_at_an_eighth_of_its_rank",
    ),
    "tests/baselines/test_grouse.py": (
        "test_a_given_step_of_two_converges_on_noisy_rows",
        "test_basis_stays_orthonormal_over_ten_thousand_rows",
    ),
    "tests/baselines/test_interface.py": (),
    "tests/baselines/test_power_stream.py": ("test_larger_blocks_lower_the_floor",),
    "tests/baselines/test_spirit.py": (
        "test_a_new_direction_raises_the_number_of_variables",
        "test_a_planted_subspace_is_recovered",
        "test_directions_come_in_order_and_agree_with_all_rows",
        "test_retained_energy_ends_within_its_bounds",
    ),
    "tests/cli/test_audit.py": (
        "test_a_record_among_few_rows_is_found",
        "test_noise_hides_the_record",
        "test_the_noise_of_a_site_stays_within_its_claim_and_near_it",
    ),
    "tests/cli/test_coordinate.py": (),
    "tests/cli/test_coordinate_nvflare.py": (),
    "tests/cli/test_demo.py": (
        "test_the_demo_says_where_the_result_is_and_keeps_what_is_there",
        "test_the_demo_writes_a_result_and_compares_it_with_the_pooled_one",
    ),
    "tests/cli/test_genotypes.py": ("test_the_demo_finds_simulated_ancestry",),
    "tests/cli/test_collect_run.py": (),
    "tests/cli/test_follow.py": (
        "test_a_courier_brings_a_summary_in_one_journey",
        "test_a_tree_of_regions_merges_the_streams_of_all_leaves",
        "test_streams_are_followed_until_all_is_sent",
    ),
    "tests/cli/test_fit.py": (
        "test_a_private_result_has_its_statement_and_no_scores",
        "test_scores_of_a_private_result_are_said_not_to_be_private",
        "test_the_installed_program_runs_from_files_to_a_folder",
    ),
    "tests/cli/test_main.py": (
        "test_a_failure_is_one_line_without_a_traceback",
        "test_a_fit_loads_no_library_that_it_does_not_use",
        "test_on_a_terminal_the_rounds_are_shown_beside_the_result",
    ),
    "tests/cli/test_plan.py": (
        "test_a_study_file_is_read_and_options_replace_it",
        "test_the_link_makes_time",
    ),
    "tests/cli/test_streams.py": (
        "test_a_pipe_is_read_as_rows_arrive_and_what_was_read_is_written",
    ),
    "tests/cli/test_watching.py": ("test_a_study_is_watched_at_both_ends_and_no_value_is_served",),
    "tests/data/test_files.py": (
        "test_a_csv_of_very_wide_rows_is_read",
        "test_every_kind_of_file_gives_exactly_the_same_numbers",
    ),
    "tests/data/test_files_cache.py": ("test_a_crash_leaves_no_copy_that_is_taken_for_whole",),
    "tests/data/test_files_memory.py": (),
    "tests/data/test_files_refused.py": (),
    "tests/data/test_one_parse.py": ("test_a_fit_with_scores_parses_each_file_once",),
    "tests/data/test_prepared.py": (
        "test_every_product_is_that_of_the_whole_table",
        "test_no_second_table_is_made",
        "test_results_are_the_same_bits_on_one_thread_and_on_two",
    ),
    "tests/data/test_where.py": ("test_a_large_file_is_filtered_without_being_in_memory_whole",),
    "tests/docs/test_cli_reference.py": (),
    "tests/docs/test_deploy.py": (
        "test_a_study_over_flare_works_without_internet_and_sends_nothing_out",
        "test_four_parties_run_a_study_in_folders_and_homes_of_their_own",
    ),
    "tests/docs/test_examples.py": (),
    "tests/docs/test_pages.py": (),
    "tests/docs/test_public.py": (
        "test_all_names_bring_no_optional_package_and_are_there_before_they_are_used",
        "test_import_brings_no_optional_package",
        "test_modules_hold_one_idea_and_never_pickle",
        "test_no_file_name_and_no_class_name_is_used_twice",
    ),
    "tests/docs/test_site.py": (),
    "tests/estimators/test_federated.py": (
        "test_every_method_finds_the_pooled_subspace",
        "test_features_split_over_sites_give_the_pooled_pca",
        "test_methods_may_be_values_with_options",
        "test_scikit_learn_contract",
    ),
    "tests/estimators/test_file_sites.py": (
        "test_files_of_every_kind_give_the_result_of_their_tables",
    ),
    "tests/estimators/test_genotypes.py": (
        "test_a_thousand_genomes_have_the_components_of_plink2_however_they_are_split",
        "test_child_processes_and_other_scales_give_the_components_of_a_table",
        "test_missing_genotypes_differ_from_plink_by_its_divisor_only",
        "test_missing_genotypes_swapped_alleles_and_odd_sites_leave_a_thousand_genomes_as_they_are",
    ),
    "tests/estimators/test_genotype_qc.py": (
        "test_filters_keep_what_plink2_keeps",
        "test_processes_and_people_who_are_not_fitted",
    ),
    "tests/estimators/test_memory.py": ("test_a_certificate_requested_of_sites_needs_no_more",),
    "tests/estimators/test_prepare.py": ("test_privacy_allows_steps_within_a_row_and_no_others",),
    "tests/estimators/test_resumable_run.py": (
        "test_a_path_that_cannot_be_written_is_refused",
        "test_a_program_that_was_killed_resumes_in_another",
        "test_a_resumed_private_run_draws_and_pays_once",
        "test_any_exact_method_resumes_bit_equal",
        "test_children_wait_for_a_run_that_is_resumed",
        "test_secure_aggregation_resumes_at_its_sites",
    ),
    "tests/estimators/test_secure.py": ("test_secure_sums_give_the_same_components",),
    "tests/estimators/test_streaming.py": (
        "test_batches_change_nothing_to_the_last_bit",
        "test_closer_to_optimal_than_incremental_pca",
    ),
    "tests/estimators/test_transport.py": (
        "test_children_pay_in_the_ledgers_they_are_given",
        "test_messages_are_logged_by_shape_and_never_by_value",
        "test_processes_give_the_same_bits_rounds_and_leakage",
        "test_the_command_line_has_both_options",
    ),
    "tests/linalg/test_compress.py": (),
    "tests/linalg/test_genotype.py": ("test_what_numba_compiles_afresh_is_what_it_has_cached",),
    "tests/linalg/test_genotype_pairs.py": (
        "test_what_numba_compiles_afresh_is_what_it_has_cached",
    ),
    "tests/linalg/test_lanczos.py": ("test_the_basis_stays_orthonormal_and_residuals_are_true",),
    "tests/linalg/test_spiked.py": (
        "test_a_strange_direction_mixes_with_those_it_comes_near",
        "test_clear_directions_are_estimated_closely",
        "test_directions_below_the_noise_are_said_to_be_lost",
    ),
    "tests/linalg/test_stream.py": ("test_batches_change_nothing_to_the_last_bit",),
    "tests/linalg/test_summary.py": ("test_a_truncated_stream_keeps_its_bounds",),
    "tests/linalg/test_threads.py": ("test_results_come_in_the_order_of_the_items",),
    "tests/privacy/dp/test_accounting.py": (
        "test_delta_is_right_to_ten_digits",
        "test_epsilon_errs_on_the_side_of_privacy_and_hardly",
        "test_mu_errs_on_the_side_of_privacy_and_hardly",
    ),
    "tests/privacy/dp/test_clipping.py": ("test_no_update_is_larger_than_its_clip",),
    "tests/privacy/dp/test_discrete_gaussian.py": (
        "test_draws_follow_the_exact_distribution",
        "test_every_deviation_has_its_moments",
        "test_no_residue_is_preferred",
        "test_rounding_a_continuous_gaussian_at_random_gives_the_discrete_one",
    ),
    "tests/privacy/dp/test_private_stream.py": (
        "test_a_stream_far_from_zero_is_centred_well",
        "test_digits_with_public_centring_and_the_clip_paid_for",
        "test_memory_is_of_order_features_times_components",
    ),
    "tests/privacy/dp/test_sensitivity.py": (
        "test_a_search_never_exceeds_the_sensitivity_of_a_sketch",
        "test_a_search_reaches_the_stated_sensitivity_and_never_more",
        "test_no_neighbours_move_an_operation_further_than_it_says",
        "test_root_2_times_the_clip_of_updates_is_exceeded",
    ),
    "tests/privacy/ledger/test_ledger.py": ("test_totals_are_those_of_dp_accounting",),
    "tests/privacy/ledger/test_ledger_chain.py": (
        "test_verifying_names_the_event_at_which_the_chain_breaks",
    ),
    "tests/privacy/ledger/test_ledger_durable.py": (),
    "tests/privacy/ledger/test_ledger_events.py": (),
    "tests/privacy/ledger/test_ledger_head.py": (),
    "tests/privacy/secagg/test_differencing.py": (
        "test_groups_that_are_isolated_are_those_whose_columns_hold_rank",
    ),
    "tests/privacy/secagg/test_fixed_point.py": (
        "test_a_sum_is_right_to_half_a_step_for_each_site",
    ),
    "tests/privacy/secagg/test_shamir.py": ("test_any_threshold_of_shares_bring_the_secret_back",),
    "tests/privacy/test_leakage.py": (
        "test_how_directions_are_cut_into_asks_does_not_matter",
        "test_rank_and_variance_are_those_of_all_directions_at_once",
    ),
    "tests/privacy/test_published_claims.py": (),
    "tests/property/test_federated.py": (
        "test_any_split_gives_the_pooled_eigenvalues",
        "test_names_and_order_of_sites_change_only_rounding",
    ),
    "tests/property/test_methods.py": (),
    "tests/property/test_papers.py": (
        "test_directions_stay_orthonormal_over_ten_thousand_merges",
        "test_merge_of_uncentred_rows_is_that_of_the_papers",
        "test_trees_keep_the_bound_of_theorem_3",
    ),
    "tests/property/test_streaming.py": (
        "test_a_grown_rank_is_as_good_as_one_had_from_the_start",
        "test_adaptive_rank_keeps_the_bracket_of_001_eq_16",
        "test_any_batches_give_the_pooled_variances",
        "test_merging_streams_is_streaming_both",
    ),
    "tests/property/test_summary.py": (
        "test_a_rank_that_covers_the_data_loses_nothing",
        "test_decay_is_a_weight_on_what_came_before",
        "test_integers_and_single_precision_are_taken_as_they_are",
        "test_merge_commutes_and_associates_within_what_was_lost",
        "test_merging_stays_within_the_bounds",
        "test_order_of_rows_and_merges_does_not_matter",
        "test_streaming_stays_within_the_bounds",
        "test_the_sine_bound_holds",
        "test_truncation_keeps_weight_mean_and_energy",
    ),
    "tests/protocol/exact/test_certified_fits.py": (),
    "tests/protocol/exact/test_by_site.py": ("test_levels_are_those_of_the_scores",),
    "tests/protocol/exact/test_certificate.py": (
        "test_the_bound_holds_on_many_problems",
        "test_the_error_of_a_narrow_wire_is_part_of_the_residual",
    ),
    "tests/protocol/exact/test_covariance.py": ("test_the_decomposition_is_that_of_all_rows",),
    "tests/protocol/exact/test_krylov.py": (
        "test_separated_components_may_stop_early_and_say_which_converged",
        "test_ten_rounds_and_four_hundred_thousand_floats_on_data_like_mnist",
        "test_ten_rounds_and_four_hundred_thousand_floats_on_mnist",
        "test_the_published_iteration_stops_on_mnist_before_it_is_there",
        "test_the_published_iteration_takes_ten_times_the_rounds_and_floats",
    ),
    "tests/protocol/exact/test_merge.py": ("test_digits_capture_what_was_measured",),
    "tests/protocol/exact/test_orthonormalise.py": (
        "test_cholesky_is_orthonormal_at_any_condition",
        "test_cholesky_keeps_orthogonality_where_gram_schmidt_loses_it",
    ),
    "tests/protocol/exact/test_power.py": (
        "test_alignment_lowers_the_floor_of_local_steps",
        "test_falling_steps_remove_the_floor",
        "test_floors_on_mnist_at_half_resolution",
        "test_sampled_runs_survive_sites_that_drop_out",
        "test_sampled_sites_come_to_a_neighbourhood",
    ),
    "tests/protocol/exact/test_randomized.py": (
        "test_a_few_iterations_are_the_centralised_algorithm_not_the_limit",
        "test_ten_iterations_are_within_a_millionth_of_a_degree",
        "test_ten_iterations_are_within_a_millionth_of_a_degree_on_mnist",
    ),
    "tests/protocol/exact/test_single_precision.py": (
        "test_the_bound_on_the_angle_holds",
        "test_with_a_certificate_it_is_as_exact_as_double",
    ),
    "tests/protocol/exact/test_subspace.py": (
        "test_components_are_those_of_all_rows",
        "test_nothing_of_the_rows_side_leaves",
        "test_with_orthonormal_rows_each_iterate_is_the_centralised_one",
    ),
    "tests/protocol/exact/test_tree.py": (
        "test_a_tree_of_any_depth_and_fan_out_equals_the_merge_of_its_newest_leaves",
        "test_any_order_with_duplicates_and_stale_versions_gives_the_same_bits",
        "test_the_answer_at_any_time_is_that_of_what_has_arrived",
    ),
    "tests/protocol/gate/test_restart.py": (),
    "tests/protocol/gate/test_canary.py": (
        "test_nothing_of_single_rows_leaves_with_noise_nor_is_put_on_file",
    ),
    "tests/protocol/private/test_budget_schedule.py": (),
    "tests/protocol/private/test_colluders.py": (),
    "tests/protocol/private/test_federated_privacy.py": (),
    "tests/protocol/private/test_missing_under_privacy.py": (),
    "tests/protocol/private/test_private_count.py": (),
    "tests/protocol/private/test_private_pca.py": (
        "test_a_run_spends_exactly_what_it_claims_in_as_many_rounds_as_it_should",
        "test_the_same_public_seed_brings_other_noise",
        "test_utility_on_digits_follows_trust_relation_and_method",
    ),
    "tests/protocol/published/test_published_runs.py": (),
    "tests/protocol/secure/test_aggregation.py": (
        "test_a_run_is_taken_up_where_a_site_was_lost",
        "test_a_secure_sum_is_the_sum_to_half_a_step_for_each_site",
        "test_a_sum_takes_three_rounds_and_keys_two_for_some_sums_ahead",
        "test_bytes_up_are_those_of_packed_integers_and_keys",
        "test_neighbours_bound_the_masks_of_each_site",
        "test_processes_sum_as_threads_do",
    ),
    "tests/protocol/secure/test_participant.py": (
        "test_a_site_never_gives_both_kinds_of_shares_in_any_order",
        "test_losses_that_leave_a_ring_which_few_could_cut_are_not_signed",
        "test_malformed_requests_are_refused_and_change_nothing",
    ),
    "tests/protocol/secure/test_secure_losses.py": (),
    "tests/protocol/secure/test_secure_methods.py": (),
    "tests/protocol/test_messages.py": ("test_messages_come_back_as_they_were",),
    "tests/protocol/test_toy_method.py": (),
    "tests/report/test_html.py": (),
    "tests/report/test_model.py": ("test_a_result_without_a_part_of_it_is_refused",),
    "tests/report/test_repeat.py": (
        "test_the_command_repeats_the_run",
        "test_what_no_command_can_say_python_can",
    ),
    "tests/security/test_beyond_the_meter.py": ("test_replies_follow_from_what_the_meter_counted",),
    "tests/security/test_genotype_lies.py": (
        "test_what_is_seen_of_a_site_does_not_depend_on_its_genotypes",
    ),
    "tests/security/test_hostile_files.py": (),
    "tests/security/test_mutation_walk.py": (),
    "tests/study/config/test_study_file.py": (
        "test_a_key_that_breaks_its_rule_is_named_with_rule_and_remedy",
    ),
    "tests/study/config/test_templates.py": (
        "test_both_say_the_same_of_every_key_with_many_values",
    ),
    "tests/study/config/test_toml_errors.py": (
        "test_very_many_problems_take_no_longer_than_a_few",
    ),
    "tests/study/config/test_toml_text.py": ("test_any_value_is_read_back_as_it_was_written",),
    "tests/study/network/test_coordinated_runs.py": (),
    "tests/study/network/test_faults.py": (),
    "tests/study/network/test_hostile_sites.py": (),
    "tests/study/network/test_message_limits.py": (),
    "tests/study/network/test_network_genotypes.py": (),
    "tests/study/planning/test_plan.py": (
        "test_the_verdict_is_against_noise_where_noise_is_all",
        "test_the_verdict_on_few_rows_is_the_reason_why_a_run_would_end",
        "test_the_verdict_tells_what_noise_leaves",
    ),
    "tests/study/planning/test_plan_cost.py": (),
    "tests/study/planning/test_plan_messages.py": (
        "test_a_private_run_crosses_as_forecast",
        "test_keys_of_many_sites_and_many_sums_are_counted",
        "test_leakage_is_about_what_the_meter_will_say",
        "test_rounds_and_bytes_are_those_of_rows_with_that_spectrum",
        "test_subspace_iteration_takes_about_as_many_rounds_whatever_its_start",
        "test_sums_over_variants_are_counted_tile_by_tile",
        "test_without_a_spectrum_the_range_holds_the_truth",
    ),
    "tests/study/planning/test_plan_noise.py": (),
    "tests/study/results/test_results.py": ("test_scores_of_a_private_run_are_never_written",),
    "tests/study/results/test_run_log.py": ("test_no_digest_of_a_reply_stands_where_others_read",),
    "tests/study/test_rehearsal.py": (),
    "tests/test_arrays.py": (),
    "tests/transport/test_nvflare_kits.py": ("test_a_kit_is_made_only_of_what_belongs_together",),
    "tests/transport/test_nvflare_network.py": (),
    "tests/transport/test_nvflare_relay.py": (),
    "tests/transport/test_nvflare_wire.py": (
        "test_a_command_ends_with_a_parent_that_is_killed",
        "test_a_warden_leaves_nobody_behind",
    ),
    "tests/transport/test_processes.py": (),
    "tests/transport/test_transcript.py": (
        "test_a_torn_last_record_is_cut_off_and_written_again",
        "test_any_flipped_bit_is_refused_and_the_file_left_alone",
    ),
}


MEASURED: dict[str, tuple[str, ...]] = {
    "tests/linalg/test_genotype.py": (),
    "tests/linalg/test_genotype_pairs.py": (),
    "tests/cli/test_genotypes.py": (),
    "src/eigenfed/study/planning/noise_forecast.py": (),
    "tests/audit/test_hostile_coordinator.py": (
        "test_the_command_tells_on_one_page_what_a_liar_gets",
    ),
    "tests/baselines/test_interface.py": (),
    "tests/cli/test_coordinate.py": (
        "test_a_study_goes_by_courier_step_by_step",
        "test_a_file_is_shown_before_it_leaves",
    ),
    "tests/cli/test_collect_run.py": (),
    "tests/cli/test_follow.py": ("test_a_courier_brings_a_summary_in_one_journey",),
    "tests/cli/test_demo.py": (),
    "tests/cli/test_fit.py": ("test_a_private_result_has_its_statement_and_no_scores",),
    "tests/cli/test_watching.py": ("test_a_study_is_watched_at_both_ends_and_no_value_is_served",),
    "tests/data/test_files_refused.py": (),
    "tests/estimators/test_file_sites.py": (),
    "tests/estimators/test_resumable_run.py": ("test_secure_aggregation_resumes_at_its_sites",),
    "tests/estimators/test_secure.py": (),
    "tests/estimators/test_transport.py": ("test_processes_give_the_same_bits_rounds_and_leakage",),
    "tests/privacy/ledger/test_ledger_head.py": (
        "test_while_running_it_is_noticed_and_stays_noticed",
    ),
    "tests/protocol/gate/test_restart.py": (),
    "tests/protocol/exact/test_orthonormalise.py": (),
    "tests/protocol/published/test_published_runs.py": (
        "test_alignment_and_a_bare_end_cost_their_rounds",
        "test_an_adaptive_rank_goes_through_a_whole_run",
        "test_fedpower_without_noise_is_alg_2",
        "test_local_data_means_only_the_largest_site_is_asked",
        "test_only_the_sites_drawn_are_asked_for_steps",
        "test_slices_and_batches_are_merged_as_alg_2_and_3_have_it",
        "test_with_hardly_any_noise_every_mechanism_is_the_pooled_pca",
    ),
    "tests/protocol/secure/test_aggregation.py": ("test_a_run_is_taken_up_where_a_site_was_lost",),
    "tests/protocol/secure/test_secure_methods.py": (
        "test_gram_schmidt_sums_securely_and_sees_dependence",
        "test_missing_entries_and_small_sites_change_nothing",
    ),
    "tests/report/test_html.py": (
        "test_a_private_page_states_the_guarantee",
        "test_a_trusted_coordinator_is_told_without_a_guarantee_against_it",
    ),
    "tests/study/network/test_coordinated_runs.py": (),
    "tests/study/network/test_hostile_sites.py": (),
    "tests/study/network/test_message_limits.py": (),
    "tests/study/network/test_network_genotypes.py": (),
    "tests/study/planning/test_plan.py": (),
    "tests/study/test_rehearsal.py": (
        "test_a_ledger_that_is_not_there_stops_the_study_before_anything_runs",
        "test_a_quorum_is_enough_and_less_is_not",
        "test_sites_do_not_share_a_ledger",
        "test_strangers_and_doubles_are_refused",
    ),
    "tests/test_arrays.py": (),
    "tests/transport/test_nvflare_kits.py": ("test_a_kit_is_made_only_of_what_belongs_together",),
    "tests/transport/test_nvflare_network.py": (),
    "tests/transport/test_nvflare_relay.py": (),
    "tests/transport/test_nvflare_wire.py": (
        "test_a_command_ends_with_a_parent_that_is_killed",
        "test_a_warden_leaves_nobody_behind",
    ),
    "tests/transport/test_processes.py": (),
    "tests/transport/test_transcript.py": (),
}
"""Slow tests that coverage is measured in: what they reach, no quick test does."""


def is_slow(nodeid: str) -> bool:
    """Tell whether a test is in the list, by the name that pytest has for it."""
    return _is_listed(nodeid, SLOW)


def is_measured(nodeid: str) -> bool:
    """Tell whether coverage is measured in a test."""
    return not is_slow(nodeid) or _is_listed(nodeid, MEASURED)


def _is_listed(nodeid: str, tests: dict[str, tuple[str, ...]]) -> bool:
    file, _, name = nodeid.partition("::")
    return file in tests and (not tests[file] or name.partition("[")[0] in tests[file])
