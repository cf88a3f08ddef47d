// facula._C: what Python builds on.
//
//   classes          Tensor (metaclass TensorMeta; subclass freely, also with __slots__), Size, dtype, device,
//                    memory_format, layout, Generator, ModuleBase, Node (grad_fn), FunctionCtx, GradMode,
//                    InferenceMode, DisableTorchFunctionSubclass, HookHandle
//   constants        every dtype by name (_C.float32 ...), strided, contiguous_format, channels_last, preserve_format,
//                    default_generator
//   operators        submodules of builtins, filled from the registry and by later definitions:
//                    functions (facula.x), nn_functional, fft, linalg, special (prefix "linalg_" stripped), ops (all, hidden
//                    ones too). Methods, x_ and properties are attached to Tensor. out=, requires_grad= (factories), axis=,
//                    keepdims= are understood.
//                    operators() -> [{name, overload, schema, doc, kind, namespaces, aliases, in_place, out}]
//   making tensors   tensor(data, dtype, device, requires_grad), as_tensor, asarray, from_numpy, frombuffer, from_dlpack,
//                    make_subclass(cls, data, requires_grad=False) -> alias of data
//                    without its history, made without calling __init__
//   defaults         get_default_dtype(), set_default_dtype(d), promote_types(a, b), can_cast(a, b), finfo_of(d) ->
//                    dict, iinfo_of(d) -> dict
//   autograd         is_grad_enabled(), set_grad_enabled(b), is_inference_mode_enabled(), GradMode(b) and InferenceMode(b)
//                    (context managers), is_anomaly_enabled(), set_anomaly(b, check_nan), backward(tensors, grads,
//                    retain_graph, create_graph, inputs), grad(outputs, inputs, grads, retain_graph, create_graph,
//                    allow_unused) -> tuple, apply_function(cls, *args) for autograd.Function: FunctionCtx is the base of
//                    autograd.Function, cls.forward(ctx, *args) or cls.forward(*args) + cls.setup_context(ctx, inputs,
//                    output), cls.backward(ctx, *grads); add_accumulated_hook(leaf, f)
//   modules          ModuleBase: instance dict with _parameters, _buffers, _modules; attributes found there; a call goes
//                    straight to forward unless one of the hook dicts of the instance (_forward_hooks,
//                    _forward_pre_hooks, _backward_hooks, _backward_pre_hooks) is not empty or global hooks are on
//                    (set_global_hooks(bool)); then `_call_impl` of the class is called. Module.__init__ puts the dicts in
//                    place (object.__setattr__ or self.__dict__)
//   registration     set_parameter_class(cls): an exact cls counts as a plain Tensor (no __torch_function__ look-up)
//                    set_reduce_helper(f): Tensor.__reduce_ex__(p) -> f(tensor, p)
//                    _disabled_torch_function_impl: as a class's __torch_function__, results are plain Tensors
//   random           Generator(device="cpu"): manual_seed, initial_seed, seed, get_state, set_state, offset;
//                    default_generator; manual_seed(n)
//   looking inside   inspect_operator, inspect_meta, inspect_interpret: inspect.cpp
//   programs         trace(function, tensors, name, dynamic) -> Program with run, text, captured, steps: program.cpp
//   boards           c_program(name, entries, names) -> C99 files: embed.cpp
//   checkpoints      check_pickle(data, where)
//   naming           set_package_name(name): what objects show and messages advise begins with it
//   machine          get_num_threads(), set_num_threads(n), memory_stats() -> dict, reset_peak_memory(), settings() ->
//                    [{name, env, type, value, doc}], set_setting(name, value), cache_stats() -> dict,
//                    record_kernels_to(folder)
//   profiler         profile_start(shapes, memory, stacks), profile_stop(session), profile_enter(name), profile_leave(id),
//                    profile_enabled(): profile.cpp
#include "capture/compiled.h"
#include "distributed.h"
#include "facula/catalog/catalog.h"
#include "facula/codegen/background.h"
#include "python.h"
#include "symint.h"

namespace {

using namespace facula::bind;

PyObject* start(PyObject*) {
  PyObject* module = nullptr;
  return guarded([&]() -> PyObject* {
    static PyModuleDef def = {PyModuleDef_HEAD_INIT,
                              "facula._C",
                              "The native part of facula.",
                              -1,
                              nullptr,
                              nullptr,
                              nullptr,
                              nullptr,
                              nullptr};
    PyRef made = checked(PyModule_Create(&def));
    module = made.get();
    make_names();
    add_errors(module);
    facula::catalog::load();
    add_types(module);
    add_size(module);
    add_symint(module);
    add_tensor(module);
    add_overrides(module);
    add_generator(module);
    add_autograd(module);
    add_function(module);
    add_construct(module);
    add_numpy(module);
    add_dlpack(module);
    add_module_base(module);
    add_machine(module);
    add_pickle(module);
    add_profile(module);
    add_operators(module);
    add_inspect(module);
    add_program(module);
    add_embed(module);
    add_vmap(module);
    add_library(module);
    add_storage(module);
    add_extend(module);
    add_torch_dispatch(module);
    add_distributed(module);
    capture::add_capture(module);
    Py_AtExit(facula::codegen::end_background);
    return made.detach();
  });
}

}  // namespace

// Import creates thousands of objects and no garbage; collecting would take a tenth of its time.
PyMODINIT_FUNC PyInit__C() {
  int collects = PyGC_Disable();
  PyObject* module = start(nullptr);
  if (collects) PyGC_Enable();
  return module;
}
