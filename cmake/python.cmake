# The Python package in <build>/python/facula: links to the sources of python/facula, the stubs, and the module _C.
if(NOT Python_Development.Module_FOUND)
  message(FATAL_ERROR "Python's headers were not found: install python3-dev, or configure with -DFACULA_PYTHON=OFF.")
endif()

add_custom_target(facula_package ALL
  COMMAND ${Python_EXECUTABLE} ${PROJECT_SOURCE_DIR}/cmake/link_package.py ${PROJECT_SOURCE_DIR}/python/facula
          ${FACULA_GENERATED}/facula ${FACULA_PACKAGE_DIR}
  COMMENT "" VERBATIM)
add_dependencies(facula_package facula_generated)

file(GLOB_RECURSE bind_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/python/bind/*.cpp)
if(bind_sources)
  Python_add_library(_C MODULE WITH_SOABI ${bind_sources})
  target_include_directories(_C PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/python/bind ${FACULA_GENERATED})
  target_link_libraries(_C PRIVATE facula)
  add_dependencies(_C facula_generated facula_package)
  set_target_properties(_C PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${FACULA_PACKAGE_DIR})
endif()
