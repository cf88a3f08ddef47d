# tests/fuzz: every target in one program that replays it (test_fuzz), and, where FACULA_FUZZ is on (clang), each as a
# program of libFuzzer's too. Each source is a target but those named here. The rooms are linked in: functions that are
# chosen when a library is loaded (ifunc) cannot be instrumented in one.
file(GLOB fuzz_targets CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/*.cpp)
set(fuzz_common ${PROJECT_SOURCE_DIR}/tests/fuzz/seeds.cpp ${PROJECT_SOURCE_DIR}/tests/fuzz/mutate.cpp
  ${PROJECT_SOURCE_DIR}/tests/fuzz/graph_texts.cpp)
set(fuzz_replay ${PROJECT_SOURCE_DIR}/tests/fuzz/replay_test.cpp)
list(REMOVE_ITEM fuzz_targets ${fuzz_common} ${fuzz_replay})
add_library(fuzz_support OBJECT ${fuzz_common})
target_include_directories(fuzz_support PUBLIC ${FACULA_GENERATED} ${PROJECT_SOURCE_DIR}/tests/cpp)
facula_room_usage(fuzz_support)
add_dependencies(fuzz_support facula_generated)

function(facula_fuzz_program name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE fuzz_support)
  facula_link_rooms(${name} distributed)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${FACULA_TEST_DIR})
endfunction()

facula_fuzz_program(test_fuzz ${fuzz_targets} ${fuzz_replay})
add_dependencies(test_fuzz facula_llvm_for_tests)  # makes kernels to start from
set_target_properties(test_fuzz PROPERTIES ENABLE_EXPORTS ON)
target_link_libraries(test_fuzz PRIVATE GTest::gtest GTest::gtest_main)
add_test(NAME fuzz COMMAND test_fuzz)
set_tests_properties(fuzz PROPERTIES TIMEOUT 300 ENVIRONMENT "FACULA_SOURCE=${PROJECT_SOURCE_DIR}")

if(FACULA_FUZZ)
  add_custom_target(fuzzers DEPENDS test_fuzz)
  foreach(source IN LISTS fuzz_targets)
    get_filename_component(target ${source} NAME_WE)
    facula_fuzz_program(fuzz_${target} ${source})
    target_compile_definitions(fuzz_${target} PRIVATE FACULA_LIBFUZZER)
    target_link_options(fuzz_${target} PRIVATE -fsanitize=fuzzer)
    add_dependencies(fuzzers fuzz_${target})
  endforeach()
endif()
