"""Each sentence of docs/security.md that promises something names the tests that show it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
# The beginning of each sentence of "What each part checks" (without links), and its tests.
SHOWN_BY: Final = {
    "Import. Each record by itself needs a commit": (
        "test_each_record_is_checked_alone_and_the_others_are_imported",
        "test_a_record_that_stands_for_a_commit_of_elsewhere_is_refused",
        "test_packages_that_contradict_the_lock_are_refused",
    ),
    "The import names each refused record": (
        "test_each_record_is_checked_alone_and_the_others_are_imported",
    ),
    "Reading. One reader": ("test_every_reader_takes_the_same_lines",),
    "Each number has bounds": ("test_every_text_of_a_record_has_a_rule",),
    "A file may have 64 MiB": (
        "test_a_file_of_more_than_64_mib_is_named_and_the_others_are_read",
    ),
    "What cannot be read is named on the pages": (
        "test_a_file_of_garbage_is_named_by_every_command_and_fills_no_screen",
    ),
    "A time more than 31 days ahead": ("test_an_import_sorts_a_record_of_2099_before_all_others",),
    "Git gets only full hashes": ("test_a_text_of_a_record_never_reaches_git_as_an_expression",),
    "A project's tree. Commands write and delete": (
        "test_whatever_writes_into_a_project_goes_the_way_that_refuses_links",
        "test_init_writes_through_no_link",
    ),
    "They refuse files of `.asv`": (
        "test_a_link_of_its_user_is_taken_and_one_of_the_repository_refused",
    ),
    "`ivhl init` checks and quotes": (
        "test_a_name_is_refused_or_makes_python_that_only_declares",
        "test_a_text_in_toml_is_read_as_it_was",
        "test_a_folder_is_in_the_workflow_as_it_is",
    ),
    "`init`, `check` and `version-checks` read plain files": (
        "test_whatever_file_never_ends_init_and_check_end",
        "test_a_package_with_something_that_never_ends_is_read",
    ),
    "The command that repeats a record": (
        "test_a_command_to_copy_that_does_more_than_measure_is_no_command",
    ),
    "Pages and tables. Names and messages are text": (
        "test_a_payload_in_every_text_runs_on_no_page",
        "test_foreign_text_is_escaped",
    ),
    "Pages link reports of PyTorch and": (
        "test_the_text_of_a_record_is_never_a_link",
        "test_reports_of_pytorch_are_links_and_no_other_address_is",
    ),
    "No text of a record is a formula": (
        "test_tables_are_written_as_the_suffix_says",
        "test_json_follows_its_schema_and_no_cell_of_the_csv_is_a_formula",
    ),
    "One rule (`ivhl/records/text.py`) writes": (
        "test_whatever_has_no_picture_is_written_out",
        "test_every_escape_of_invisible_characters_is_the_one_rule",
    ),
    "asv's own pages show": ("test_a_character_that_nobody_sees_is_written_out",),
    "asv's commands write nothing": (
        "test_asv_never_writes_into_our_site",
        "test_asv_deletes_no_folder_that_it_did_not_make",
    ),
    "A site grows": (
        "test_a_site_grows_with_what_a_sender_names_and_not_with_its_square",
        "test_an_import_takes_50_new_machines_and_says_how_to_get_the_others",
    ),
    "Publishing deletes only": ("test_a_publish_that_is_killed_leaves_the_old_site_whole",),
    "A page that a record breaks": (
        "test_a_page_that_breaks_without_a_record_being_the_reason_ends_no_publish",
    ),
    "Cells. Installed from hashed locks": (
        "test_an_edited_lock_is_a_problem_and_is_not_installed",
    ),
    "uv obeys no setting": (
        "test_no_setting_that_would_change_a_cell_is_obeyed",
        "test_variables_that_would_change_a_cell_are_not_obeyed",
    ),
    "Installed files are compared": ("test_nothing_runs_in_a_cell_whose_files_were_altered",),
    "Shared folders. The projects of a user share": (),
    "No folder that another user owns": (
        "test_a_folder_that_another_user_could_write_to_is_not_used",
        "test_a_folder_of_another_user_is_not_used",
    ),
    "The index of records lies in": (
        "test_an_index_in_a_folder_of_another_user_is_not_used",
        "test_only_the_user_may_write_into_the_folder_of_indexes",
    ),
    # What is not promised.
    "Code of the same user can change": (),
    "Journals, through which": (),
    "Code that is measured can write there": (
        "test_a_journal_is_read_up_to_a_limit_and_what_is_no_finding_is_passed_over",
    ),
    "Processes. What measured code starts": (
        "test_nothing_outlives_its_case_however_that_ends",
        "test_nothing_outlives_a_command_however_that_ends",
    ),
    "A run that is killed": (
        "test_a_run_that_is_ended_takes_its_cases_and_their_daemons_along",
        "test_a_run_that_is_ended_takes_what_asv_started_along_and_its_lock",
    ),
    "Code that stops or kills": (
        "test_a_case_that_keeps_its_parent_stopped_ends_soon_after_its_deadline",
    ),
    "Where Linux gives a case": (
        "test_a_command_can_kill_its_supervisors_only_where_it_is_not_isolated",
    ),
    # What is not promised.
    "Elsewhere (most containers)": ("test_code_that_holds_the_pipe_of_the_caller_ends_with_it",),
    "Not covered:": (),
    "Containers. What they print": ("test_a_case_that_was_not_ordered_is_refused",),
    "Where two commits are ordered": (
        "test_records_of_both_commits_are_kept_where_both_were_ordered",
    ),
    "CPUs are chosen": ("test_hosts_that_start_in_the_same_moment_choose_other_cpus",),
    "Scripts. A script of `ivhl run`": ("test_a_script_is_the_main_module_and_has_no_network",),
    # What is not promised.
    "It is not confined": (),
    "Packages of a target. What `--with`": (
        "test_an_overlay_holds_what_is_added_and_its_packages_come_first",
        "test_an_overlay_is_made_again_from_its_lock",
    ),
    "A distribution that would hide": (
        "test_a_distribution_that_would_hide_a_package_of_the_cell_is_refused",
    ),
    "The observatory. A case has": (
        "test_a_library_that_misbehaves_is_named_and_the_others_go_on",
        "test_time_and_memory_of_a_case_have_limits",
    ),
    "Python and release of a record": (
        "test_lines_that_are_no_records_are_named_and_all_others_are_shown",
    ),
    "Only locks that are plain files": ("test_only_locks_of_the_observatory_are_published",),
    "Commands on its pages quote": (
        "test_no_text_of_a_record_is_a_link_or_a_command",
        "test_the_command_that_tries_a_case_quotes_the_version_of_a_record",
    ),
    "Workflows. No token that writes": (
        "test_every_artifact_is_taken_by_the_id_that_a_hosted_job_returned",
        "test_every_action_is_pinned_to_one_hash",
        "test_one_comment_is_written_and_then_edited_in_place_and_nobody_elses",
    ),
    "Signatures. A job that runs nothing": (
        "test_a_file_that_was_changed_after_it_was_signed_is_refused",
    ),
}


def promises() -> list[str]:
    """Return the sentences of the list, without links and in one line each."""
    text = (ROOT / "docs/security.md").read_text(encoding="utf-8")
    listed = text.split("## What each part checks\n")[1].split("\n## ")[0]
    found = []
    for point in re.split(r"^\* ", listed, flags=re.MULTILINE)[1:]:
        plain = re.sub(r" ?\(?\[(?:[^\]]*)\]\([^)]*\)\)?", "", point).replace("**", "")
        plain = " ".join(plain.split())
        # The name of a part is no sentence of its own.
        name = re.match(r"[A-Z][\w' ]*\. ", plain)
        head = name[0] if name else ""
        parts = re.split(r"(?<=[A-Za-z`)0-9])\. (?=[A-Z`]|uv |asv)", plain.removeprefix(head))
        found += [head + parts[0], *parts[1:]]
    return found


def test_each_promise_names_its_tests() -> None:
    unknown = [one for one in promises() if not any(map(one.startswith, SHOWN_BY))]
    assert not unknown, "name the tests that show these sentences"
    gone = [one for one in SHOWN_BY if not any(p.startswith(one) for p in promises())]
    assert not gone, "these sentences are not in docs/security.md any more"


def test_each_named_test_is_there() -> None:
    named = {test for tests in SHOWN_BY.values() for test in tests}
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    assert not [test for test in sorted(named) if f"def {test}(" not in sources]
