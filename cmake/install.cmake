# What a wheel holds beside the .py files: both libraries, the module, stubs and the shipped kernels, all in one folder.
# The libraries of oneDNN and OpenBLAS come as packages of their own, found relative to that folder.
include(GNUInstallDirs)
set(package facula)
set_target_properties(facula facula_llvm PROPERTIES
  BUILD_RPATH_USE_ORIGIN ON INSTALL_RPATH "$ORIGIN;$ORIGIN/../../..;$ORIGIN/../scipy_openblas32/lib")
install(TARGETS facula facula_llvm LIBRARY DESTINATION ${package})
if(TARGET _C)
  set_target_properties(_C PROPERTIES BUILD_RPATH_USE_ORIGIN ON INSTALL_RPATH "$ORIGIN")
  install(TARGETS _C LIBRARY DESTINATION ${package})
  install(DIRECTORY ${FACULA_GENERATED}/facula/ DESTINATION ${package} FILES_MATCHING PATTERN "*.pyi")
  install(DIRECTORY ${FACULA_PACKAGE_DIR}/kernels DESTINATION ${package} OPTIONAL)
endif()
