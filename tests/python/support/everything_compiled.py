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
    """,
    "a program decides itself which memory it takes": """
        test_implicit_behaviours::test_a_few_elements_are_written_without_a_copy_of_the_tensor
        test_autograd_graph::test_a_checkpoint_keeps_the_memory_of_its_inputs_only
        test_autograd_graph::test_memory_is_freed_while_backward_runs
    """,
    "a function that is interpreted has no frame of Python, so stacks do not name its lines": """
        test_bind_autograd::test_anomaly_mode_keeps_the_forward_stack
        test_autograd::test_anomaly_detection_names_the_forward_line
    """,
    "a capture compiles kernels that eager calls do not": """
        test_random_numbers::test_a_new_number_compiles_nothing
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
