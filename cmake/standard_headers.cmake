# The headers of the standard library that most sources include, precompiled once for objects and once for programs, whose
# position-independent code differs. They take a fifth of the time of a build otherwise. No header of Facula's is among them:
# each change of one would compile everything again, and clones of the repository would share no objects in the compiler cache.
set(FACULA_STANDARD_HEADERS
    algorithm array atomic bit chrono cmath complex cstdint cstring deque functional limits map memory mutex numeric optional random
    set span sstream string string_view thread tuple type_traits unordered_map unordered_set utility variant vector)

# facula_standard_headers(NAME HEADERS...): the object library NAME, which owns precompiled HEADERS. The compiler cache knows
# them by the digest of what they include (NAME.gch.sum): GCC writes other bytes in each folder.
function(facula_standard_headers name)
  set(stamp ${PROJECT_BINARY_DIR}/${name}.cpp)
  file(CONFIGURE OUTPUT ${stamp} CONTENT "// A source whose object library owns precompiled headers.\n")
  add_library(${name} OBJECT ${stamp})
  list(TRANSFORM ARGN PREPEND "<" OUTPUT_VARIABLE headers)
  list(TRANSFORM headers APPEND ">")
  target_precompile_headers(${name} PRIVATE ${headers})
  target_link_libraries(${name} PRIVATE OpenMP::OpenMP_CXX)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(TRANSFORM headers PREPEND "#include " OUTPUT_VARIABLE lines)
    list(JOIN lines "\n" lines)
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/${name}.h CONTENT "${lines}\n")
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -fopenmp -E -P ${PROJECT_BINARY_DIR}/${name}.h
                    OUTPUT_VARIABLE included COMMAND_ERROR_IS_FATAL ANY)
    string(SHA256 digest "${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_CXX_FLAGS} ${CMAKE_BUILD_TYPE} ${FACULA_SANITIZE} ${included}")
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/CMakeFiles/${name}.dir/cmake_pch.hxx.gch.sum CONTENT "${digest}\n")
  endif()
endfunction()

# facula_precompiled(TARGET HEADERS): TARGET includes the precompiled headers that the object library HEADERS owns.
function(facula_precompiled target headers)
  if(NOT FACULA_FUZZ)
    target_precompile_headers(${target} REUSE_FROM ${headers})
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)  # the compiler cache sees them by it
  endif()
endfunction()

facula_standard_headers(facula_object_headers ${FACULA_STANDARD_HEADERS})
