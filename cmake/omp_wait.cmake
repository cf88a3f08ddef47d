# libfacula_omp_wait.so: how OpenMP's threads wait is settled before OpenMP's library is initialised, for C++ programs and
# Python alike. Of libraries that do not need one another, the loader initialises the one that is named last first.
add_library(facula_omp_wait SHARED ${CMAKE_CURRENT_LIST_DIR}/omp_wait.cpp)
set_target_properties(facula_omp_wait PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${FACULA_PACKAGE_DIR})
set_property(TARGET OpenMP::OpenMP_CXX APPEND PROPERTY INTERFACE_LINK_LIBRARIES facula_omp_wait)
