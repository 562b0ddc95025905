"""Tests of sandboxes in jails that hold in virtual machines as they are. Not here: those that take long where all is emulated, and
those that give a program's start a fraction of a second."""

from __future__ import annotations

import pytest
from box_help import Boxes
from test_kept import (  # noqa: F401
    test_a_snapshot_of_a_snapshot_has_both,
    test_an_image_without_the_hosts_system,
    test_files_modes_links_and_removals_come_back,
    test_names_of_whiteouts_are_names_like_others,
    test_what_is_in_use_is_not_removed,
)
from test_links import (  # noqa: F401
    judged,
    test_links_in_a_circle_are_said,
    test_reading_goes_where_the_user_could_read,
    test_writing_and_removing_go_where_the_user_could,
)
from test_microvm_boxes import boxes, common  # noqa: F401  # fixtures
from test_use import (  # noqa: F401
    test_a_program_that_does_not_compile_ends_as_in_a_fresh_interpreter,
    test_a_reader_that_fails_ends_the_command_and_not_the_sandbox,
    test_a_signal_reaches_a_command_and_a_kill_all_of_it,
    test_an_interpreter_that_was_changed_is_not_the_warm_one,
    test_output_beyond_what_is_kept_is_cut_and_said_and_does_not_hold_the_program_up,
    test_root_has_power_over_its_own_files_and_processes_alone,
)
from test_walls import (  # noqa: F401
    place,
    test_its_owner_does_not_follow_a_link_into_the_agent,
    test_no_address_can_be_reached,
    test_the_image_cannot_be_changed_on_the_host,
    test_the_walls_cannot_be_taken_down,
)
from test_way_out import (  # noqa: F401
    server,
    test_a_port_that_a_program_holds_is_free_again_when_it_has_ended,
    test_programs_are_told_of_the_proxy_only_while_there_is_one,
    test_rules_are_changed_live_and_open_connections_are_cut,
)

from proctor.engine.sandbox import Sandbox


@pytest.fixture(scope="module")
def kept(boxes: Boxes) -> Boxes:  # noqa: F811
    return boxes


@pytest.fixture
def box(common: Sandbox) -> Sandbox:  # noqa: F811
    """One for all: each leaves it in order, if with more files."""
    return common
