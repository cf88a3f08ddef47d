# What others wrote: found on the system or among the packages of a Python environment (.venv, see setup/setup.sh).
if(NOT Python_EXECUTABLE AND EXISTS ${PROJECT_SOURCE_DIR}/.venv/bin/python)
  set(Python_EXECUTABLE ${PROJECT_SOURCE_DIR}/.venv/bin/python)
endif()
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter OPTIONAL_COMPONENTS Development.Module)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)

# facula_python_file(VARIABLE PACKAGE SUFFIX): the installed file of a Python package whose path ends in SUFFIX.
function(facula_python_file variable package suffix)
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c "
import importlib.metadata as m, sys
try:
    print(next(f.locate().resolve() for f in m.files(sys.argv[1]) or [] if str(f).endswith(sys.argv[2])), end='')
except (m.PackageNotFoundError, StopIteration):
    pass" ${package} ${suffix}
    OUTPUT_VARIABLE found)
  set(${variable} "${found}" PARENT_SCOPE)
endfunction()

# oneDNN: matrix products and convolutions. Any version from 3.2 on.
facula_python_file(onednn_config onednn-devel-cpu-gomp cmake/dnnl/dnnl-config.cmake)
if(onednn_config)
  get_filename_component(onednn_hint ${onednn_config} DIRECTORY)
endif()
find_package(dnnl 3.2 CONFIG HINTS ${onednn_hint})
if(NOT dnnl_FOUND)
  message(FATAL_ERROR "oneDNN 3.2 or newer was not found. `make setup` installs it; or give -Ddnnl_DIR=FOLDER.")
endif()
add_library(facula_onednn INTERFACE)
target_link_libraries(facula_onednn INTERFACE DNNL::dnnl)

# OpenBLAS: LAPACK. The functions of the Python package carry the prefix scipy_, and integers have 32 bits. Who includes
# its headers links facula_openblas; the library itself is for libfacula_openblas.so.
facula_python_file(openblas_header scipy-openblas32 include/cblas.h)
add_library(facula_openblas INTERFACE)
if(openblas_header)
  get_filename_component(openblas_include ${openblas_header} DIRECTORY)
  get_filename_component(openblas_root ${openblas_include} DIRECTORY)
  target_include_directories(facula_openblas SYSTEM INTERFACE ${openblas_include})
  set(FACULA_OPENBLAS_LIBRARY ${openblas_root}/lib/libscipy_openblas.so)
  target_compile_definitions(facula_openblas INTERFACE FACULA_LAPACK_PREFIX=scipy_)
  set(FACULA_TAKEN_IN ${FACULA_OPENBLAS_LIBRARY})
else()
  find_package(LAPACK REQUIRED)
  set(FACULA_OPENBLAS_LIBRARY LAPACK::LAPACK)
  target_compile_definitions(facula_openblas INTERFACE FACULA_LAPACK_PREFIX=)
endif()

# Highway: sorting.
find_package(hwy CONFIG REQUIRED)
add_library(facula_highway INTERFACE)
target_link_libraries(facula_highway INTERFACE hwy::hwy_contrib hwy::hwy)

# minizip and zlib: checkpoints and compressed data sets.
find_package(ZLIB REQUIRED)
find_path(FACULA_MINIZIP_INCLUDE minizip/zip.h)
find_library(FACULA_MINIZIP_LIBRARY NAMES libminizip.a minizip)  # linked in where that can be: it is small
if(NOT FACULA_MINIZIP_INCLUDE OR NOT FACULA_MINIZIP_LIBRARY)
  message(FATAL_ERROR "minizip was not found: install libminizip-dev.")
endif()
add_library(facula_minizip INTERFACE)
target_include_directories(facula_minizip SYSTEM INTERFACE ${FACULA_MINIZIP_INCLUDE})
target_link_libraries(facula_minizip INTERFACE ${FACULA_MINIZIP_LIBRARY} ZLIB::ZLIB)

# libcrypto: SHA-256 of kernels in the cache, which is all that is linked in where that can be.
find_path(FACULA_CRYPTO_INCLUDE openssl/sha.h)
find_library(FACULA_CRYPTO_LIBRARY NAMES libcrypto.a crypto)
if(NOT FACULA_CRYPTO_INCLUDE OR NOT FACULA_CRYPTO_LIBRARY)
  message(FATAL_ERROR "OpenSSL's libcrypto was not found: install libssl-dev.")
endif()
add_library(facula_crypto INTERFACE)
target_include_directories(facula_crypto SYSTEM INTERFACE ${FACULA_CRYPTO_INCLUDE})
target_link_libraries(facula_crypto INTERFACE ${FACULA_CRYPTO_LIBRARY})
target_link_options(facula_crypto INTERFACE -Wl,--exclude-libs,libcrypto.a)  # Python's ssl has one of its own

include(ducc0)

# LLVM 19, static, for libfacula_llvm alone.
find_program(LLVM_CONFIG NAMES llvm-config-19 HINTS /usr/lib/llvm-19/bin REQUIRED)
function(facula_llvm_config variable)
  execute_process(COMMAND ${LLVM_CONFIG} ${ARGN} OUTPUT_VARIABLE out OUTPUT_STRIP_TRAILING_WHITESPACE
                  COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(out UNIX_COMMAND "${out}")
  set(${variable} ${out} PARENT_SCOPE)
endfunction()
facula_llvm_config(FACULA_LLVM_INCLUDE --includedir)
facula_llvm_config(FACULA_LLVM_LIBRARIES --link-static --libfiles x86codegen x86desc x86info asmprinter scalaropts instcombine
                   mc target analysis core support)
list(APPEND FACULA_LLVM_LIBRARIES z zstd tinfo Threads::Threads ${CMAKE_DL_LIBS} m)
