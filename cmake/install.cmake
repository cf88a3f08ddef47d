# What is installed. In a wheel everything lies in the folder of the package, beside the .py files: the libraries, the
# module, stubs, the shipped kernels, and include/ and lib/cmake/ for C++. Elsewhere the folder is PREFIX/lib/facula, and
# include/ and lib/cmake/ lie in PREFIX.
# A wheel takes in oneDNN, OpenBLAS, whose packages are not meant to be required by others, and the compiler's OpenMP. That
# keeps its name, so that oneDNN, which needs it by that name, and programs of users find it loaded: one pool of threads.
# auditwheel takes in what else is not on every system (`make wheel`).
if(SKBUILD)
  set(package facula)
  set(root ${package}/)
  set(library libfacula.so)
  set_target_properties(facula facula_llvm PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(FILES $<TARGET_FILE:DNNL::dnnl> DESTINATION ${package} RENAME $<TARGET_SONAME_FILE_NAME:DNNL::dnnl>)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libgomp.so.1 OUTPUT_VARIABLE openmp OUTPUT_STRIP_TRAILING_WHITESPACE)
  file(REAL_PATH ${openmp} openmp)
  install(FILES ${openmp} DESTINATION ${package} RENAME libgomp.so.1)
  include(notices)
else()
  set(package lib/facula)
  set(root "")
  set(library ${package}/libfacula.so)
  set_target_properties(facula facula_llvm PROPERTIES INSTALL_RPATH "$ORIGIN;$<TARGET_FILE_DIR:DNNL::dnnl>")
endif()
set_target_properties(facula_sort facula_openblas_loaded PROPERTIES INSTALL_RPATH "$ORIGIN")
install(TARGETS facula facula_llvm facula_sort facula_openblas_loaded facula_omp_wait LIBRARY DESTINATION ${package})
install(FILES ${FACULA_TAKEN_IN} DESTINATION ${package})
if(TARGET hwy::hwy AND NOT SKBUILD)
  install(IMPORTED_RUNTIME_ARTIFACTS hwy::hwy hwy::hwy_contrib LIBRARY DESTINATION ${package})
endif()
if(TARGET _C)
  set_target_properties(_C PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS _C LIBRARY DESTINATION ${package})
  install(DIRECTORY ${FACULA_GENERATED}/facula/ DESTINATION ${package} FILES_MATCHING PATTERN "*.pyi" PATTERN "*.py")
  install(DIRECTORY ${FACULA_PACKAGE_DIR}/kernels DESTINATION ${package} OPTIONAL)
endif()

# C++: find_package(facula).
include(CMakePackageConfigHelpers)
configure_file(${PROJECT_SOURCE_DIR}/cmake/facula-config.cmake.in ${PROJECT_BINARY_DIR}/facula-config.cmake @ONLY)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/facula-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/facula-config.cmake ${PROJECT_BINARY_DIR}/facula-config-version.cmake
        DESTINATION ${root}lib/cmake/facula)
install(CODE "set(FACULA_SOURCES ${FACULA_SOURCES})\nset(FACULA_GENERATED ${FACULA_GENERATED})\nset(FACULA_INCLUDE_TO ${root}include)")
install(SCRIPT ${PROJECT_SOURCE_DIR}/cmake/install_headers.cmake)
