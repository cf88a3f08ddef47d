# The rooms of src/facula, in the order of rooms.txt, and what is made of them.
set(FACULA_SOURCES ${PROJECT_SOURCE_DIR}/src/facula)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${FACULA_SOURCES}/rooms.txt)
file(STRINGS ${FACULA_SOURCES}/rooms.txt FACULA_ROOMS REGEX "^[a-z_]+$")

# ops.h and its kin, from the definitions in catalog/. Files that stay the same keep their time.
set(FACULA_GENERATED ${PROJECT_BINARY_DIR}/generated)
file(CONFIGURE OUTPUT ${FACULA_GENERATED}/facula/version.h CONTENT
     "// The version of this build.\n#pragma once\n#define FACULA_VERSION \"${PROJECT_VERSION}\"\n")
file(GLOB catalog_sources CONFIGURE_DEPENDS ${FACULA_SOURCES}/catalog/*.cpp ${FACULA_SOURCES}/catalog/*.h)
set(generate ${FACULA_SOURCES}/op/generate.py)
set(generated_files ${FACULA_GENERATED}/facula/ops.h ${FACULA_GENERATED}/facula/ops.cpp
                    ${FACULA_GENERATED}/facula/families.h ${FACULA_GENERATED}/facula/schemas.h
                    ${FACULA_GENERATED}/torch/tensor.h)
add_custom_command(
  OUTPUT ${generated_files}
  COMMAND ${Python_EXECUTABLE} ${generate} --catalog ${FACULA_SOURCES}/catalog --out ${FACULA_GENERATED}
  DEPENDS ${generate} ${catalog_sources}
  COMMENT "Generating ops.h and stubs from the catalog" VERBATIM)

# C++ modules, from the Python ones.
file(GLOB module_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/python/facula/nn/*.py ${PROJECT_SOURCE_DIR}/python/facula/nn/modules/*.py
     ${PROJECT_SOURCE_DIR}/python/facula/optim/*.py)
set(generate_modules ${FACULA_SOURCES}/nn/generate.py)
set(generated_nn ${FACULA_GENERATED}/facula/nn)
set(FACULA_GENERATED_MODULES ${generated_nn}/modules.cpp)
foreach(shard RANGE 3)
  list(APPEND FACULA_GENERATED_MODULES ${generated_nn}/translated_${shard}.cpp)
endforeach()
add_custom_command(
  OUTPUT ${FACULA_GENERATED_MODULES} ${generated_nn}/init.h ${generated_nn}/modules.h ${generated_nn}/translated.h
         ${FACULA_GENERATED}/facula/optim/optimizers.h ${FACULA_GENERATED}/facula/optim/optimizers.cpp
         ${FACULA_GENERATED}/facula/optim/lr_scheduler.h ${FACULA_GENERATED}/torch/nn/layers.h
         ${FACULA_GENERATED}/torch/nn/functional.h ${FACULA_GENERATED}/torch/nn/init.h
         ${FACULA_GENERATED}/torch/optim/optimizers.h
  COMMAND ${Python_EXECUTABLE} ${generate_modules} --package ${PROJECT_SOURCE_DIR}/python/facula --catalog ${FACULA_SOURCES}/catalog
          --out ${FACULA_GENERATED} --shards 4
  DEPENDS ${generate_modules} ${FACULA_SOURCES}/nn/translate.py ${FACULA_SOURCES}/nn/torch_headers.py ${generate} ${module_sources}
          ${PROJECT_SOURCE_DIR}/python/facula/_queries.py ${catalog_sources}
  COMMENT "Generating C++ modules from the Python ones" VERBATIM)
add_custom_target(facula_generated DEPENDS ${generated_files} ${FACULA_GENERATED_MODULES} ${generated_nn}/modules.h)

# The version of generated code is what it is made by: the generator's sources, those of the loop IR that it expands, and
# LLVM. So a kernel is found as long as nothing of that changed, wherever and whenever it was built.
file(GLOB generator_sources CONFIGURE_DEPENDS ${FACULA_SOURCES}/codegen/llvm*.* ${FACULA_SOURCES}/codegen/object.cpp ${FACULA_SOURCES}/codegen/maps.cpp
     ${FACULA_SOURCES}/codegen/kernel.h ${FACULA_SOURCES}/schedule/lane*.* ${FACULA_SOURCES}/loop/lanes.*
     ${FACULA_SOURCES}/loop/expr.* ${FACULA_SOURCES}/loop/monoid.*
     ${FACULA_SOURCES}/loop/simplify.* ${FACULA_SOURCES}/loop/elementary*.*)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${generator_sources})
facula_llvm_config(llvm_version --version)
set(digests "LLVM ${llvm_version}")
foreach(source IN LISTS generator_sources)
  file(SHA256 ${source} digest)
  string(APPEND digests " ${digest}")
endforeach()
string(SHA256 generator_version "${digests}")
string(SUBSTRING ${generator_version} 0 32 generator_version)
set_source_files_properties(${FACULA_SOURCES}/codegen/cache.cpp PROPERTIES
                            COMPILE_DEFINITIONS FACULA_GENERATOR_VERSION="${generator_version}")

# Square roots of vectors, which tell nothing to errno; nor are vectors handed over by any convention of calls.
file(GLOB small_routines CONFIGURE_DEPENDS ${FACULA_SOURCES}/numerics/small*.cpp)
set_source_files_properties(${small_routines} ${FACULA_SOURCES}/numerics/column_strips.cpp ${FACULA_SOURCES}/numerics/tridiagonal.cpp
                            PROPERTIES COMPILE_OPTIONS "-fno-math-errno;-Wno-psabi")
set_source_files_properties(${FACULA_SOURCES}/numerics/batched_products.cpp PROPERTIES COMPILE_OPTIONS -Wno-psabi)

# Made for the vectors of ducc0's objects (ducc0.cmake), whose type depends on the instructions. Steps of our own are quicker, and
# nearer, if products are not rounded.
set_source_files_properties(${FACULA_SOURCES}/numerics/fft_lines.cpp PROPERTIES COMPILE_OPTIONS
                            "-mavx2;-mfma;-ffp-contract=fast;-Wno-psabi")

# g++ 12 vectorises the loops that add the elements of ranks at -O3 alone: 47 GB/s in place of 14.
set_source_files_properties(${FACULA_SOURCES}/distributed/reduce.cpp PROPERTIES COMPILE_OPTIONS -O3)

# Options of their own do not fit headers that were precompiled without them.
set_source_files_properties(${small_routines} ${FACULA_SOURCES}/numerics/column_strips.cpp ${FACULA_SOURCES}/numerics/tridiagonal.cpp
                            ${FACULA_SOURCES}/numerics/fft_lines.cpp ${FACULA_SOURCES}/distributed/reduce.cpp
                            PROPERTIES SKIP_PRECOMPILE_HEADERS ON)

# clang takes ten minutes for such vectors with its sanitizers, and no fuzz target comes here.
if(FACULA_FUZZ)
  set_property(SOURCE ${small_routines} ${FACULA_SOURCES}/numerics/batched_products.cpp ${FACULA_SOURCES}/numerics/fft_lines.cpp
               APPEND PROPERTY COMPILE_OPTIONS "-O0;-fno-sanitize=all")
endif()

# facula_room(NAME): object library facula_NAME of the room's sources, if it has any yet.
function(facula_room room)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${FACULA_SOURCES}/${room}/*.cpp)
  if(room STREQUAL "codegen")  # LLVM has a library of its own
    list(FILTER sources EXCLUDE REGEX "/codegen/llvm[^/]*\\.cpp$")
  elseif(room STREQUAL "loop")  # special functions are compiled with what it prints (special.cmake)
    list(FILTER sources EXCLUDE REGEX "/mapped(_wide)?\\.cpp$")
  elseif(room STREQUAL "deploy")  # a library of its own, and C that is portable
    list(FILTER sources EXCLUDE REGEX "/nnapi_host/")
    list(APPEND sources ${FACULA_SOURCES}/deploy/nnapi_runner.c)
  elseif(room STREQUAL "numerics")  # and Highway's sort
    list(FILTER sources EXCLUDE REGEX "/vqsort\\.cpp$")
  elseif(room STREQUAL "catalog")
    list(APPEND sources ${FACULA_GENERATED}/facula/ops.cpp)
  elseif(room STREQUAL "nn")
    list(APPEND sources ${FACULA_GENERATED_MODULES})
  elseif(room STREQUAL "optim")
    list(APPEND sources ${FACULA_GENERATED}/facula/optim/optimizers.cpp)
  endif()
  if(NOT sources)
    return()
  endif()
  add_library(facula_${room} OBJECT ${sources})
  facula_room_usage(facula_${room})
  facula_precompiled(facula_${room} facula_object_headers)
  list(FIND FACULA_ROOMS ${room} position)
  list(FIND FACULA_ROOMS run first_generated)
  if(position GREATER_EQUAL first_generated)
    add_dependencies(facula_${room} facula_generated)
  endif()
  if(room STREQUAL "device")
    target_link_libraries(facula_${room} PUBLIC facula_onednn facula_openblas)
  elseif(room STREQUAL "numerics")
    target_link_libraries(facula_${room} PUBLIC facula_ducc0)
  elseif(room STREQUAL "io")
    target_link_libraries(facula_${room} PUBLIC facula_minizip)
  elseif(room STREQUAL "base")
    target_link_libraries(facula_${room} PUBLIC facula_crypto)
  endif()
endfunction()

function(facula_room_usage target)
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/src ${FACULA_GENERATED})
  target_link_libraries(${target} PUBLIC OpenMP::OpenMP_CXX fmt::fmt nlohmann_json::nlohmann_json ${CMAKE_DL_LIBS})
endfunction()

# facula_link_rooms(TARGET LAST): puts the rooms up to LAST into a library or program.
function(facula_link_rooms target last)
  foreach(room IN LISTS FACULA_ROOMS)
    if(TARGET facula_${room})
      target_link_libraries(${target} PRIVATE facula_${room})
      if(room STREQUAL "loop")
        target_link_libraries(${target} PRIVATE facula_special)
      elseif(room STREQUAL "numerics")
        target_link_libraries(${target} PRIVATE ${FACULA_DUCC0_OBJECTS})
      endif()
    endif()
    if(room STREQUAL last)
      break()
    endif()
  endforeach()
endfunction()

# facula_llvm_library(NAME FOLDER): libfacula_llvm.so in FOLDER, LLVM inside and its symbols hidden. It takes the loop IR
# from whoever loads it: libfacula.so, or a test program.
file(GLOB llvm_sources CONFIGURE_DEPENDS ${FACULA_SOURCES}/codegen/llvm*.cpp)
add_library(facula_llvm_objects OBJECT ${llvm_sources})
facula_room_usage(facula_llvm_objects)
facula_precompiled(facula_llvm_objects facula_object_headers)
target_include_directories(facula_llvm_objects SYSTEM PRIVATE ${FACULA_LLVM_INCLUDE})

function(facula_llvm_library name folder)
  add_library(${name} SHARED $<TARGET_OBJECTS:facula_llvm_objects>)
  set_target_properties(${name} PROPERTIES OUTPUT_NAME facula_llvm LIBRARY_OUTPUT_DIRECTORY ${folder})
  target_link_libraries(${name} PRIVATE ${FACULA_LLVM_LIBRARIES})
  target_link_options(${name} PRIVATE -Wl,--exclude-libs,ALL -Wl,-Bsymbolic-functions -Wl,--gc-sections)
endfunction()

# facula_sort_library(NAME FOLDER): libfacula_sort.so in FOLDER, which needs nothing of the rest.
add_library(facula_sort_objects OBJECT ${FACULA_SOURCES}/numerics/vqsort.cpp)
target_link_libraries(facula_sort_objects PUBLIC facula_highway)

function(facula_sort_library name folder)
  add_library(${name} SHARED $<TARGET_OBJECTS:facula_sort_objects>)
  set_target_properties(${name} PROPERTIES OUTPUT_NAME facula_sort LIBRARY_OUTPUT_DIRECTORY ${folder})
  target_link_libraries(${name} PRIVATE facula_highway)
endfunction()

# facula_openblas_library(NAME FOLDER): libfacula_openblas.so in FOLDER, through which OpenBLAS is found beside the rest.
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/openblas.cpp CONTENT "// Only what this library is linked with counts.\n")

function(facula_openblas_library name folder)
  add_library(${name} SHARED ${PROJECT_BINARY_DIR}/openblas.cpp)
  set_target_properties(${name} PROPERTIES OUTPUT_NAME facula_openblas LIBRARY_OUTPUT_DIRECTORY ${folder})
  target_link_options(${name} PRIVATE -Wl,--no-as-needed)
  target_link_libraries(${name} PRIVATE ${FACULA_OPENBLAS_LIBRARY})
endfunction()

# facula_nnapi_library(NAME FOLDER): libneuralnetworks.so in FOLDER, Android's interface of neural networks on this machine. It
# stays loaded, since libfacula.so has threads.
set_source_files_properties(${FACULA_SOURCES}/deploy/nnapi_runner.c PROPERTIES LANGUAGE CXX SKIP_PRECOMPILE_HEADERS ON)
file(GLOB nnapi_sources CONFIGURE_DEPENDS ${FACULA_SOURCES}/deploy/nnapi_host/*.cpp)

function(facula_nnapi_library name folder)
  add_library(${name} SHARED ${nnapi_sources})
  facula_room_usage(${name})
  add_dependencies(${name} facula_generated)
  set_target_properties(${name} PROPERTIES OUTPUT_NAME neuralnetworks LIBRARY_OUTPUT_DIRECTORY ${folder})
  target_link_options(${name} PRIVATE -Wl,-z,nodelete)
endfunction()
