# libfacula_runtime.so: what packages run (docs/export.md), for machines that need nothing else of Facula. It exports the C
# interface (deploy/facula_c.h), and contains what that reaches: no code generator, no printers, and of the catalog what
# programs call (deploy/runtime_catalog.py). Code that plans calls is compiled for size; what each call runs, and loops over
# elements, are the objects of libfacula.so. Factorizations, Fourier transforms, sorting and rarer special functions are in
# libfacula_numerics.so, which it loads for the first of them.
set(runtime_quick base tensor)
set(runtime_small profile sym loop op autograd graph batch schedule codegen device run io)
set(runtime_each_call "/run/(call|execute|execution_state|library_call|program|traced)\\.cpp")
set(runtime_loops "/device/cpu/(conv|depthwise|move|pool|product|scan|search|winograd)\\.cpp")
set(runtime_catalog ${catalog_sources})
list(FILTER runtime_catalog INCLUDE REGEX "\\.cpp$")
list(TRANSFORM runtime_catalog REPLACE "^.*/" "${FACULA_GENERATED}/runtime/catalog/")
set(runtime_users ${runtime_quick} ${runtime_small} deploy)
list(TRANSFORM runtime_users PREPEND ${FACULA_SOURCES}/)
set(runtime_reduce ${FACULA_SOURCES}/deploy/runtime_catalog.py)
add_custom_command(
  OUTPUT ${runtime_catalog}
  COMMAND ${Python_EXECUTABLE} ${runtime_reduce} --catalog ${FACULA_SOURCES}/catalog --out ${FACULA_GENERATED}/runtime/catalog
          --uses ${runtime_users}
  DEPENDS ${runtime_reduce} ${catalog_sources}
  COMMENT "Writing the catalog of libfacula_runtime.so" VERBATIM)

# facula_runtime_objects(NAME OPTIONS... SOURCES ...)
function(facula_runtime_objects name)
  cmake_parse_arguments(given "" "" "OPTIONS;SOURCES" ${ARGN})
  add_library(${name} OBJECT ${runtime_on_demand} ${given_SOURCES})
  facula_room_usage(${name})
  add_dependencies(${name} facula_generated)
  target_compile_definitions(${name} PRIVATE FACULA_RUNTIME)
  target_compile_options(${name} PRIVATE -ffunction-sections -fdata-sections ${given_OPTIONS})
  target_link_libraries(${name} PUBLIC facula_onednn facula_openblas facula_minizip facula_crypto)
  target_link_libraries(facula_runtime PRIVATE ${name})
endfunction()

# Its objects double the work of a build, so a build folder makes it on demand (make runtime), and a wheel always.
if(NOT SKBUILD)
  set(runtime_on_demand EXCLUDE_FROM_ALL)
endif()
add_library(facula_runtime SHARED ${runtime_on_demand})
set(sources)
foreach(room IN LISTS runtime_small)
  get_target_property(of_room facula_${room} SOURCES)
  list(APPEND sources ${of_room})
endforeach()
list(FILTER sources EXCLUDE REGEX "${runtime_loops}|${runtime_each_call}")
facula_runtime_objects(facula_runtime_small OPTIONS -Os -fvisibility=hidden
                       SOURCES ${sources} ${FACULA_SOURCES}/deploy/c_interface.cpp)
# Definitions are without the properties that nothing reads here, so that parameters and functions are unused.
facula_runtime_objects(facula_runtime_catalog OPTIONS -Os -fvisibility=hidden -fno-rtti -Wno-unused -Wno-unused-parameter
                       SOURCES ${runtime_catalog} ${FACULA_GENERATED}/facula/ops.cpp)
foreach(room IN LISTS runtime_quick)
  target_link_libraries(facula_runtime PRIVATE facula_${room})
  list(APPEND runtime_objects $<TARGET_OBJECTS:facula_${room}>)
endforeach()

set(loops $<FILTER:$<TARGET_OBJECTS:facula_device>,INCLUDE,${runtime_loops}>
          $<FILTER:$<TARGET_OBJECTS:facula_run>,INCLUDE,${runtime_each_call}>)
set(numerics_within "/(workspace|batched_products|integer_products)\\.cpp")  # of each product, or shared by both libraries
set(numerics_objects $<FILTER:$<TARGET_OBJECTS:facula_numerics>,EXCLUDE,${numerics_within}> $<TARGET_OBJECTS:facula_special>)
set(within $<FILTER:$<TARGET_OBJECTS:facula_numerics>,INCLUDE,${numerics_within}>)
list(APPEND runtime_objects ${loops} ${within} $<TARGET_OBJECTS:facula_runtime_small> $<TARGET_OBJECTS:facula_runtime_catalog>)
target_sources(facula_runtime PRIVATE ${loops} ${within})
set(lazy_numerics ${FACULA_GENERATED}/runtime/lazy_numerics.cpp)
set(write_lazy ${FACULA_SOURCES}/deploy/lazy_library.py)
add_custom_command(
  OUTPUT ${lazy_numerics}
  COMMAND ${Python_EXECUTABLE} ${write_lazy} --nm ${CMAKE_NM} --library libfacula_numerics.so --out ${lazy_numerics}
          --objects ${numerics_objects} --program ${runtime_objects}
  DEPENDS ${write_lazy} ${numerics_objects} ${runtime_objects}
  COMMENT "Writing the functions that load libfacula_numerics.so" COMMAND_EXPAND_LISTS VERBATIM)
target_sources(facula_runtime PRIVATE ${lazy_numerics})
facula_room_usage(facula_runtime)

# What libfacula_numerics.so takes from it, besides the C interface.
set(runtime_exports ${PROJECT_BINARY_DIR}/runtime_exports.txt)
file(CONFIGURE OUTPUT ${runtime_exports} CONTENT [[{
  global:
    facula_*;
    extern "C++" {
      facula::parallel_for*; facula::num_threads*; facula::in_parallel*; facula::vector_bytes*; facula::symbol_beside*;
      facula::TableMutex::*; facula::Half::operator*; facula::numerics::memory_source*;
    };
  local: *;
};
]])
target_link_options(facula_runtime PRIVATE -Wl,--gc-sections -Wl,--version-script=${runtime_exports} -s)
set_target_properties(facula_runtime PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${FACULA_PACKAGE_DIR} LINK_DEPENDS ${runtime_exports})

add_library(facula_numerics_loaded SHARED ${runtime_on_demand} ${numerics_objects})
foreach(part IN LISTS FACULA_DUCC0_OBJECTS)
  target_link_libraries(facula_numerics_loaded PRIVATE ${part})
endforeach()
facula_room_usage(facula_numerics_loaded)
target_link_libraries(facula_numerics_loaded PRIVATE facula_runtime)
target_link_options(facula_numerics_loaded PRIVATE -Wl,--no-as-needed -s)
set_target_properties(facula_numerics_loaded PROPERTIES OUTPUT_NAME facula_numerics LINKER_LANGUAGE CXX
                      LIBRARY_OUTPUT_DIRECTORY ${FACULA_PACKAGE_DIR})
