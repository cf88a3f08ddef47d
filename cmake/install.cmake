# What a wheel holds beside the .py files, all in one folder: the libraries, the module, stubs and the shipped kernels.
# oneDNN comes as a package of its own, which puts it into lib/ of the environment. OpenBLAS, Highway and Sleef are
# taken in: the packages of the first are not meant to be required by others, and the others are Debian's.
set(package facula)
set_target_properties(facula facula_llvm PROPERTIES INSTALL_RPATH "$ORIGIN;$ORIGIN/../../..")
install(TARGETS facula facula_llvm LIBRARY DESTINATION ${package})
install(FILES ${FACULA_TAKEN_IN} DESTINATION ${package})
get_filename_component(sleef ${FACULA_SLEEF} REALPATH)
string(REGEX REPLACE "^.*/([^/]*\\.so\\.[0-9]+)[^/]*$" "\\1" sleef_name ${sleef})  # what programs ask for
install(FILES ${sleef} DESTINATION ${package} RENAME ${sleef_name})
if(TARGET hwy::hwy)
  install(IMPORTED_RUNTIME_ARTIFACTS hwy::hwy hwy::hwy_contrib LIBRARY DESTINATION ${package})
endif()
if(TARGET _C)
  set_target_properties(_C PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS _C LIBRARY DESTINATION ${package})
  install(DIRECTORY ${FACULA_GENERATED}/facula/ DESTINATION ${package} FILES_MATCHING PATTERN "*.pyi")
  install(DIRECTORY ${FACULA_PACKAGE_DIR}/kernels DESTINATION ${package} OPTIONAL)
endif()
