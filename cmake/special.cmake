# Special functions: loop/special_functions.h as rows of the table of loop/expr.h, and as text, for printed kernels; the
# elementary functions that they call, printed as C99 by the rooms up to `loop`; and both compiled for the host, where
# -O3 and -fno-trapping-math let logarithms be taken side by side.
set(special_sources ${FACULA_SOURCES}/loop/special_functions.py ${FACULA_SOURCES}/loop/special_functions.h
                    ${FACULA_SOURCES}/loop/mapped_tables.h)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${special_sources})
execute_process(COMMAND ${Python_EXECUTABLE} ${FACULA_SOURCES}/loop/special_functions.py ${FACULA_GENERATED} COMMAND_ERROR_IS_FATAL ANY)

set(c_printer ${FACULA_SOURCES}/codegen/c_printer.cpp ${FACULA_SOURCES}/codegen/c_element.cpp ${FACULA_SOURCES}/codegen/c99.cpp)
add_executable(facula_special_elementary ${PROJECT_SOURCE_DIR}/cmake/special_elementary.cpp ${c_printer})
facula_room_usage(facula_special_elementary)
foreach(room base profile sym tensor loop)
  if(TARGET facula_${room})
    target_link_libraries(facula_special_elementary PRIVATE facula_${room})
  endif()
endforeach()

set(special_elementary ${FACULA_GENERATED}/facula/special_elementary.h)
add_custom_command(OUTPUT ${special_elementary} COMMAND facula_special_elementary ${special_elementary}
                   DEPENDS facula_special_elementary COMMENT "Printing the elementary functions of special ones" VERBATIM)
add_library(facula_special OBJECT ${FACULA_SOURCES}/loop/mapped.cpp ${FACULA_SOURCES}/loop/mapped_wide.cpp
            ${special_elementary})
facula_room_usage(facula_special)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")  # which does not hear GCC's pragmas for the rest of a source
  set_source_files_properties(${FACULA_SOURCES}/loop/mapped.cpp PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma")
  set_source_files_properties(${FACULA_SOURCES}/loop/mapped_wide.cpp PROPERTIES COMPILE_OPTIONS
                              "-mavx2;-mfma;-mavx512f;-mavx512dq;-mavx512vl")
endif()
target_compile_options(facula_special PRIVATE -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math -Wno-psabi -Wno-unknown-pragmas)
