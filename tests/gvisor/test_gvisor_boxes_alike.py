"""Tests of sandboxes in jails that hold behind gVisor as they are. Not here: those that `ls` and `stat` of a path fail in
(Debian's build does not know a flag of theirs), and those that look at a sandbox's processes from the host."""

from __future__ import annotations

import pytest
from box_help import Boxes
from test_gvisor_boxes import box, boxes  # noqa: F401  # fixtures
from test_kept import (  # noqa: F401
    test_a_root_without_usual_directories_can_be_created_from,
    test_a_snapshot_of_a_snapshot_has_both,
    test_an_image_without_the_hosts_system,
    test_modules_that_an_image_names_are_imported_ahead_and_stay_as_the_files_say,
    test_processes_stand_still_while_files_are_read,
    test_several_snapshots_at_once_are_each_whole_and_nothing_runs_meanwhile,
    test_sparse_files_longer_than_the_disk_are_refused_and_all_goes_on,
    test_the_default_image_has_pip_and_no_other_package,
    test_what_is_in_use_is_not_removed,
)
from test_links import (  # noqa: F401
    judged,
    test_a_name_that_is_roots_file_by_turns_lends_no_rights,
    test_a_way_that_changes_meanwhile_leads_nowhere_else,
    test_links_in_a_circle_are_said,
    test_reading_goes_where_the_user_could_read,
)
from test_use import (  # noqa: F401
    test_a_program_that_does_not_compile_ends_as_in_a_fresh_interpreter,
    test_a_reader_that_fails_ends_the_command_and_not_the_sandbox,
    test_a_signal_reaches_a_command_and_a_kill_all_of_it,
    test_a_timeout_takes_the_whole_tree_and_nothing_else,
    test_an_interpreter_that_was_changed_is_not_the_warm_one,
    test_memory_beyond_the_bound_ends_the_program_and_is_told,
    test_output_beyond_what_is_kept_is_cut_and_said_and_does_not_hold_the_program_up,
    test_streamed_output_comes_in_order_at_the_readers_pace,
)
from test_walls import (  # noqa: F401
    place,
    test_its_owner_does_not_follow_a_link_into_the_agent,
    test_no_address_can_be_reached,
    test_no_file_of_the_host_but_its_system,
    test_nothing_of_another_sandbox_is_there,
    test_the_image_cannot_be_changed_on_the_host,
    test_the_walls_cannot_be_taken_down,
)
from test_way_out import (  # noqa: F401
    server,
    test_a_port_that_a_program_holds_is_free_again_when_it_has_ended,
    test_only_what_is_named_is_reached_and_every_attempt_is_told,
    test_programs_are_told_of_the_proxy_only_while_there_is_one,
    test_rules_are_changed_live_and_open_connections_are_cut,
)


@pytest.fixture(scope="module")
def kept(boxes: Boxes) -> Boxes:  # noqa: F811
    return boxes
