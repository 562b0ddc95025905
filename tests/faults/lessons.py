"""What published data and the users of other graders teach, and the tests that hold each lesson."""

from __future__ import annotations

OF_DATA = {
    "an expected output may be a number, a truth value or a list in JSON": (
        "tests/grading/test_formats.py::test_an_expected_whole_number_is_its_digits",
        "tests/grading/test_formats.py::test_text_of_a_case_is_text",
        "tests/grading/test_formats.py::test_apps_programs",
    ),
    "exact comparison of floats fails right programs": (
        "tests/faults/test_false_fail.py::test_fewer_digits_than_the_expected_number_has",
    ),
    "an import of a preamble may shadow a builtin": (
        "tests/grading/test_end_to_end.py::test_a_preamble_may_shadow_builtins",
    ),
    "the preamble is the problem's, explicit and never guessed": (
        "tests/grading/test_extract.py::test_the_preamble_is_the_problems_and_only_that",
        "tests/faults/test_lessons.py::test_a_verdict_hangs_on_the_preamble_of_its_problem",
    ),
    "carriage returns go in as they are": (
        "tests/grading/test_end_to_end.py::test_carriage_returns_reach_the_program",
        "tests/grading/test_formats.py::test_bytes_go_in_as_they_are",
    ),
    "an empty expected output is legal, a missing one is not": (
        "tests/grading/test_formats.py::test_what_does_not_fit_is_named_with_its_place",
        "tests/faults/test_lessons.py::test_an_empty_output_may_be_expected_and_a_missing_one_not",
    ),
    "functions change their arguments": (
        "tests/grading/test_end_to_end.py::test_arguments_that_are_changed_are_each_calls_own",
        "tests/grading/test_grade.py::test_each_call_gets_its_own_arguments",
    ),
    "values of two types may be equal though their texts differ": (
        "tests/grading/test_values.py::test_equality",
        "tests/faults/test_lessons.py::test_values_are_equal_beyond_their_types",
    ),
    "results may be generators, and tuples where JSON has lists": (
        "tests/grading/test_end_to_end.py::test_calls_by_data",
        "tests/faults/test_lessons.py::test_a_tuple_where_json_has_a_list",
    ),
    "some tests ask for truth alone": (
        "tests/grading/test_end_to_end.py::test_liars_and_kinds",
        "tests/grading/test_values.py::test_truth",
    ),
    "evalplus: equal first, then close where floats are expected": (
        "tests/grading/test_values.py::test_tolerance",
        "tests/faults/test_lessons.py::test_close_only_where_floats_are_expected",
    ),
    "Kattis and testlib have rules of their own": (
        "tests/grading/test_checkers.py::test_kattis_flags",
        "tests/grading/test_checkers.py::test_specification",
    ),
    "some published tests are wrong: say so, do not bend": (
        "tests/faults/test_lessons.py::test_cases_that_contradict_each_other_are_told",
    ),
    "a completion may be a body without its head": (
        "tests/grading/test_extract.py::test_a_body_without_its_head_gets_the_prompt",
        "tests/faults/test_lessons.py::test_a_body_alone_runs_behind_its_prompt",
    ),
}

OF_USERS = {
    "output is cut, or ends as a time limit, above the size of a pipe": (
        "tests/faults/test_false_fail.py::test_more_output_than_a_pipe_holds",
        "tests/faults/test_false_fail.py::test_a_million_bytes_in_one_write",
    ),
    "trivial programs time out under load": (
        "tests/faults/test_false_fail.py::test_many_right_programs_at_once",
        "tests/engine/test_time_limits.py::test_the_wait_for_a_cpu_is_not_the_programs",
    ),
    "a function that raises earns everything where nothing is expected": (
        "tests/grading/test_grade.py::test_a_crash_earns_nothing_where_nothing_is_expected",
        "tests/faults/test_lessons.py::test_an_empty_output_may_be_expected_and_a_missing_one_not",
    ),
    "samples that fail run their tests twice": (
        "tests/faults/test_lessons.py::test_a_wrong_program_runs_no_case_twice",
    ),
    "a grader hangs, or loses descriptors until none are left": (
        "tests/engine/test_lifecycle.py::test_five_hundred_programs_leave_everything_flat",
    ),
    "numpy does not import under a limit of memory": (
        "tests/faults/test_lessons.py::test_address_space_is_not_memory",
        "tests/faults/test_lessons.py::test_numpy_under_a_limit_of_memory",
    ),
    "limits that the trainer inherited make every score 0": (
        "tests/engine/test_limits.py::test_inherited_limits_make_no_zeros",
    ),
    "floats compared exactly, no buffer of stdout, numbers of more than 4300 digits": (
        "tests/faults/test_false_fail.py::test_fewer_digits_than_the_expected_number_has",
        "tests/faults/test_false_fail.py::test_bytes_written_to_the_buffer_of_stdout",
        "tests/faults/test_false_fail.py::test_a_number_of_more_digits_than_python_reads",
    ),
    "input() once, and then all the rest as bytes": (
        "tests/faults/test_lessons.py::test_a_line_and_then_the_rest_as_bytes",
    ),
    "several answers are right and there is no checker": (
        "tests/faults/test_false_fail.py::test_one_of_several_right_answers",
    ),
    "deep recursion loses the verdicts of the tests before it": (
        "tests/grading/test_end_to_end.py::test_calls_that_crash_or_leave",
        "tests/faults/test_lessons.py::test_recursion_costs_only_the_test_that_recurses",
    ),
    "one program is judged differently on a slower or busier host": (
        "tests/engine/test_time_limits.py::test_a_third_of_the_limit_never_flips",
        "tests/engine/test_time_limits.py::test_over_the_limit_is_over_it_on_any_host",
    ),
    "sleeping past the wall limit, threads past the CPU limit": (
        "tests/engine/test_limits.py::test_wall",
        "tests/faults/test_lessons.py::test_threads_past_the_cpu_limit",
    ),
    "a small cap of output looks like a crash": (
        "tests/faults/test_wrong_status.py::test_the_output_limit_does_not_depend_on_the_writes",
        "tests/engine/test_limits.py::test_the_widest_output",
    ),
    "kills for memory have no label": (
        "tests/faults/test_wrong_status.py::test_more_memory_than_allowed_is_said_to_be_that",
    ),
    "output that is not UTF-8, or cut within a character": (
        "tests/grading/test_end_to_end.py::test_text_that_is_not_ascii",
        "tests/faults/test_wrong_status.py::test_text_cut_within_a_character",
    ),
    "work survives a time limit": (
        "tests/engine/test_limits.py::test_survivors_are_dead_before_the_next_case",
        "tests/faults/test_limits_and_leftovers.py::test_a_grandchild_that_holds_the_output_open",
        "tests/faults/test_lessons.py::test_a_daemon_does_not_outlive_a_time_limit",
    ),
    "a bound of concurrency is exceeded": ("tests/engine/test_lifecycle.py::test_slots_are_never_exceeded",),
    "a failure of the infrastructure is scored 0": (
        "tests/faults/test_false_fail.py::test_a_batch_that_this_host_could_not_run",
        "tests/grading/test_policy.py::test_our_own_failure_is_no_reward_whatever_the_policy",
    ),
    "one pathological output and a slow checker stop training": (
        "tests/grading/test_checkers.py::test_hostile_outputs_take_linear_time",
    ),
    "/tmp is shared, or leaks": ("tests/engine/test_limits.py::test_a_case_leaves_nothing_for_the_next",),
    "a right prefix of the output passes": (
        "tests/grading/test_checkers.py::test_rules",
        "tests/faults/test_lessons.py::test_a_prefix_of_the_right_output_is_wrong",
    ),
    "an object that equals everything": (
        "tests/faults/test_false_pass.py::test_an_object_that_says_it_equals_everything",
    ),
    "a program is wrapped in a function, so that global breaks": (
        "tests/grading/test_end_to_end.py::test_honest_programs",
        "tests/faults/test_lessons.py::test_a_programs_top_level_is_a_modules",
    ),
    "what is written to stderr spoils a right output": (
        "tests/faults/test_false_fail.py::test_more_on_stderr_than_a_pipe_holds",
    ),
}
