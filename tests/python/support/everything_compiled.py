"""A plugin of pytest that compiles each test function: ``make test-compiled``.

A test whose arguments are parameters alone is called again, so that what was captured runs too, unless
the plain function does not pass twice either.
"""

import inspect

import pytest

import facula

CALLS = 3
# Tests of what eager mode has and a compiled function has not, by reason.
LEFT_OUT = {
    "the tape has one node for a captured part, and not the nodes of its calls": """
        test_bind_autograd::test_nodes_are_seen_from_python test_bind_autograd::test_a_custom_function
        test_bind_autograd::test_several_results_and_gradients_that_are_none
        test_autograd::test_a_function_with_its_own_gradient
        test_implicit_behaviours::test_printing_says_dtype_gradient_and_shape
        test_library::test_gradients_follow_the_registered_formula
        test_missing_derivatives::test_nodes_without_derivative_are_called_as_in_pytorch
        test_bind_tensor::test_repr_says_what_autograd_knows
        test_autograd_graph::test_a_node_shows_what_it_saved
        test_autograd_graph::test_a_node_shows_the_arguments_of_its_call
        test_autograd_graph::test_hooks_on_one_saved_tensor
        test_autograd_graph::test_hooks_see_what_is_saved_and_give_it_back
    """,
    "a profile has one row for a program, and not the rows of its calls": """
        test_profiler::test_a_custom_function_and_its_gradient_are_recorded
        test_profiler::test_a_forked_child_records_nothing_until_it_asks
        test_profiler::test_a_gradient_is_attributed_to_the_line_of_its_call
        test_profiler::test_a_library_call_lies_in_its_operator
        test_profiler::test_a_step_of_an_optimizer_is_named
        test_profiler::test_a_table_is_sorted_and_limited
        test_profiler::test_a_trace_has_complete_events_that_nest
        test_profiler::test_a_whole_stack_leads_from_the_line_to_the_start
        test_profiler::test_an_exception_leaves_the_profiler_off_and_the_events_usable
        test_profiler::test_an_operator_its_kernel_shapes_and_line_are_recorded
        test_profiler::test_averages_sum_by_name_shape_and_line
        test_profiler::test_compilation_is_told_apart_from_the_call
        test_profiler::test_flame_graphs_get_stacks
        test_profiler::test_in_place_and_out_forms_are_recorded
        test_profiler::test_lines_inside_the_package_are_not_the_users
        test_profiler::test_lines_of_big_operators_that_let_the_interpreter_go_are_known
        test_profiler::test_memory_of_an_operator_is_its_result
        test_profiler::test_operations_are_counted_where_asked
        test_profiler::test_operators_have_the_names_of_their_namespaces
        test_profiler::test_parts_of_the_program_have_names
        test_profiler::test_profiles_do_not_nest
        test_profiler::test_self_times_add_up_to_the_outermost_totals
        test_profiler::test_the_older_interface_is_there
        test_profiler::test_workers_of_a_loader_do_not_disturb_a_profile
    """,
    "a program does not compute what nobody reads": """
        test_interrupts::test_a_long_operator_ends_between_pieces_of_its_kernel
        test_memory::test_a_request_that_no_machine_can_serve_fails_with_its_size_after_a_retry
        test_storage_files::test_released_memory_is_not_read
        test_storage_files::test_weights_in_layouts_of_libraries_are_released_too
    """,
    "a program computes the values of a checkpoint again itself, and does not call the function again": """
        test_autograd_graph::test_a_checkpoint_runs_again_only_as_far_as_it_must
        test_autograd_graph::test_a_function_that_changes_is_noticed
        test_autograd_graph::test_what_a_reentrant_checkpoint_refuses
    """,
    "a segment holds the objects that its guards compare, and a capture those that it makes": """
        test_bind_tensor::test_a_subclass_with_slots_and_a_finalizer
        test_bind_tensor::test_objects_are_not_leaked
        test_memory::test_tensors_are_freed_without_collecting_garbage
        test_memory::test_backward_hooks_of_modules_are_freed_after_a_gradient_with_a_history
        test_utility_names::test_statistics_of_a_window_are_logged_when_it_is_full
    """,
    "a program computes several calls in one kernel, which rounds and adds up in another order": """
        test_autograd_graph::test_hooks_reach_composites_and_custom_functions
        test_program_functions::test_gradients_follow_sizes
        test_recurrent::test_bits_are_the_same_for_any_number_of_threads_and_in_any_company
    """,
    "a program writes a tensor as often as it is divided, and not once for each call": """
        test_implicit_behaviours::test_views_alias_and_share_a_version
    """,
    "a program decides itself which memory it takes, and what it saves for gradients": """
        test_autograd_graph::test_a_written_version_is_noticed
        test_memory::test_memory_held_grows_and_shrinks_with_tensors
        test_memory::test_peak_remembers_what_was_freed_until_it_is_reset
        test_memory::test_the_gradient_of_a_sum_is_a_view_with_the_values_of_each_reduction
        test_storage_files::test_backward_reads_what_was_saved_once_its_memory_is_restored
        test_implicit_behaviours::test_a_few_elements_are_written_without_a_copy_of_the_tensor
        test_autograd_graph::test_a_checkpoint_keeps_the_memory_of_its_inputs_only
        test_autograd_graph::test_memory_is_freed_while_backward_runs
    """,
    "a function that is interpreted has no frame of Python, so stacks do not name its lines": """
        test_bind_autograd::test_anomaly_mode_keeps_the_forward_stack
        test_autograd::test_anomaly_detection_names_the_forward_line
        test_program_hooks::test_hooks_whose_gradients_leave_the_trace_are_refused
    """,
    "a capture compiles kernels that eager calls do not": """
        test_random_numbers::test_a_new_number_compiles_nothing
        test_optim::test_a_changed_rate_compiles_nothing
        test_call_cache::test_places_that_are_picked_share_their_kernels
        test_call_cache::test_another_eps_or_momentum_needs_no_other_kernel
    """,
    "a compiled function that a capture calls is a part of it, and its own report counts nothing": """
        test_compile_histories::test_backward_hooks_of_modules_do_not_divide_a_step
    """,
    "the optimizer's kernel is a part of the program, and no event of its own": """
        test_optim::test_one_call_moves_all_parameters
    """,
}
REASONS = {name: reason for reason, names in LEFT_OUT.items() for name in names.split()}


def _is_repeatable(item) -> bool:
    parameters = set(getattr(getattr(item, "callspec", None), "params", ()))
    return not (set(item._fixtureinfo.argnames) - parameters) and item.instance is None


def pytest_collection_modifyitems(items):
    for item in items:
        name = f"{item.module.__name__}::{getattr(item, 'originalname', item.name)}"
        if name in REASONS:
            item.add_marker(pytest.mark.skip(reason=REASONS[name]))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    plain = pyfuncitem.obj
    if inspect.iscoroutinefunction(plain) or inspect.isgeneratorfunction(plain):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    compiled = facula.compile(plain)
    compiled(**arguments)
    for _ in range(CALLS - 1 if _is_repeatable(pyfuncitem) else 0):
        try:
            compiled(**arguments)
        except Exception:
            try:
                plain(**arguments)
            except Exception:  # it does not pass twice
                break
            raise
    return True
