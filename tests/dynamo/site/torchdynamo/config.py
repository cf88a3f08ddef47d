"""Settings that the suite's tests change. They have no effect here."""

import logging

dynamic_shapes = False
specialize_int_float = True
verbose = False
verify_correctness = False
raise_on_backend_error = True
raise_on_ctx_manager_usage = True
raise_on_assertion_error = False
fake_tensor_propagation = True
cache_size_limit = 64
suppress_errors = False
replay_record_enabled = False
log_level = logging.WARNING
output_graph_code = False
print_graph_breaks = False
guard_nn_modules = False
normalize_ir = False
capture_scalar_outputs = False
enforce_cond_guards_match = True
optimize_ddp = False
dead_code_elimination = True
skip_nnmodule_hook_guards = False
rewrite_assert_with_torch_assert = True
traceable_tensor_subclasses = set()
repro_after = None
repro_level = 2
debug_dir_root = "."
