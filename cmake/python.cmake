# The Python package in <build>/python/facula: links to the sources of python/facula, the stubs, and the module _C.
if(NOT Python_Development.Module_FOUND)
  message(FATAL_ERROR "Python's headers were not found: install python3-dev, or configure with -DFACULA_PYTHON=OFF.")
endif()

add_custom_target(facula_package ALL
  COMMAND ${Python_EXECUTABLE} ${PROJECT_SOURCE_DIR}/cmake/write_lazy.py ${PROJECT_SOURCE_DIR}/python/facula
          ${FACULA_GENERATED}/facula
  COMMAND ${Python_EXECUTABLE} ${PROJECT_SOURCE_DIR}/cmake/link_package.py ${PROJECT_SOURCE_DIR}/python/facula
          ${FACULA_GENERATED}/facula ${FACULA_PACKAGE_DIR}
  COMMENT "" VERBATIM)
add_dependencies(facula_package facula_generated)

file(GLOB_RECURSE bind_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/python/bind/*.cpp)
if(bind_sources)
  Python_add_library(_C MODULE WITH_SOABI ${bind_sources})
  target_include_directories(_C PRIVATE ${PROJECT_SOURCE_DIR}/python/bind ${FACULA_GENERATED})
  facula_room_usage(_C)
  facula_precompiled(_C facula_object_headers)
  target_link_libraries(_C PRIVATE facula)
  add_dependencies(_C facula_generated facula_package facula_neuralnetworks)
  # What `python -m facula.info` tells about the build.
  set(built_with "LLVM ${llvm_version}, ducc0 ${FACULA_DUCC0_VERSION}")
  foreach(package IN ITEMS dnnl:oneDNN hwy:Highway)
    string(REPLACE ":" ";" package ${package})
    list(GET package 0 found)
    list(GET package 1 shown)
    if(${found}_VERSION)
      string(APPEND built_with ", ${shown} ${${found}_VERSION}")
    endif()
  endforeach()
  set_source_files_properties(${PROJECT_SOURCE_DIR}/python/bind/machine.cpp PROPERTIES COMPILE_DEFINITIONS
    "FACULA_BUILT_WITH=\"${built_with}\";FACULA_COMPILER=\"${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}\";FACULA_BUILD_TYPE=\"${CMAKE_BUILD_TYPE}\"")
  set_target_properties(_C PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${FACULA_PACKAGE_DIR})
endif()

# The shipped kernel cache: the kernels of common calls, compiled when Facula is built.
file(GLOB warm CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/python/facula/warm.py)
if(TARGET _C AND warm)
  set(kernels_stamp ${PROJECT_BINARY_DIR}/kernels.stamp)
  add_custom_command(
    OUTPUT ${kernels_stamp}
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${FACULA_PACKAGE_DIR}/kernels
    COMMAND ${CMAKE_COMMAND} -E env PYTHONPATH=${PROJECT_BINARY_DIR}/python
            ${Python_EXECUTABLE} -m facula.warm --out ${FACULA_PACKAGE_DIR}/kernels
    COMMAND ${CMAKE_COMMAND} -E touch ${kernels_stamp}
    DEPENDS ${warm} facula facula_llvm _C facula_package
    COMMENT "Compiling the kernels that are shipped" VERBATIM)
endif()
if(FACULA_KERNELS)
  add_custom_target(kernels ALL DEPENDS ${kernels_stamp})
else()
  add_custom_target(kernels DEPENDS ${kernels_stamp})
endif()
