# ducc0: FFT. Its C++ sources come from its source package, unpacked once to .cache/ beside the sources of Facula.
set(FACULA_DUCC0_VERSION 0.42.0)
set(ducc0_sha256 4e11c59b53a43355b053aebb2a62ee16eebeed026575f7d216cf09d437ce52ef)
set(FACULA_CACHE ${PROJECT_SOURCE_DIR}/.cache CACHE PATH "Folder of fetched source packages")
set(FACULA_DUCC0 ${FACULA_CACHE}/ducc0-${FACULA_DUCC0_VERSION} CACHE PATH "Folder of ducc0's sources")

if(NOT EXISTS ${FACULA_DUCC0}/src/ducc0/fft/fft.h)
  message(STATUS "Fetching ducc0 ${FACULA_DUCC0_VERSION}")
  string(RANDOM unique)
  set(scratch ${FACULA_CACHE}/fetch-${unique})
  file(MAKE_DIRECTORY ${scratch})
  # pip asks ducc0's build system for the package's requirements, and that asks for a newer CMake than it needs to answer.
  execute_process(
    COMMAND ${CMAKE_COMMAND} -E env SKBUILD_CMAKE_VERSION=>=3.15 ${Python_EXECUTABLE} -m pip --disable-pip-version-check
            download -q --no-deps --no-build-isolation --no-binary ducc0 -d ${scratch} ducc0==${FACULA_DUCC0_VERSION}
    ERROR_VARIABLE trouble)
  file(GLOB package ${scratch}/ducc0-*.tar.gz)
  if(NOT package)
    message(FATAL_ERROR "ducc0's source package could not be fetched with pip:\n${trouble}")
  endif()
  file(SHA256 ${package} digest)
  if(NOT digest STREQUAL ducc0_sha256)
    file(REMOVE_RECURSE ${scratch})
    message(FATAL_ERROR "ducc0's source package is not the one that is expected: its SHA-256 is ${digest}")
  endif()
  file(ARCHIVE_EXTRACT INPUT ${package} DESTINATION ${scratch})
  if(NOT EXISTS ${FACULA_DUCC0})  # another build may have been quicker
    file(RENAME ${scratch}/ducc0-${FACULA_DUCC0_VERSION} ${FACULA_DUCC0})
  endif()
  file(REMOVE_RECURSE ${scratch})
endif()

# Only files that are under the 3-clause BSD license too; the rest of ducc0 is under the GPL alone.
set(ducc0_source ${FACULA_DUCC0}/src)
add_library(facula_ducc0 INTERFACE)
target_include_directories(facula_ducc0 SYSTEM INTERFACE ${ducc0_source})
target_link_libraries(facula_ducc0 INTERFACE Threads::Threads)

add_library(ducc0_infra OBJECT ${ducc0_source}/ducc0/infra/mav.cc ${ducc0_source}/ducc0/infra/string_utils.cc
                               ${ducc0_source}/ducc0/infra/threading.cc)
add_library(ducc0_float OBJECT ${PROJECT_SOURCE_DIR}/cmake/ducc0_fft.cpp)
add_library(ducc0_double OBJECT ${PROJECT_SOURCE_DIR}/cmake/ducc0_fft.cpp)
target_compile_definitions(ducc0_float PRIVATE FACULA_FFT_TYPE=float)
target_compile_definitions(ducc0_double PRIVATE FACULA_FFT_TYPE=double)
foreach(part infra float double)
  target_include_directories(ducc0_${part} SYSTEM PRIVATE ${ducc0_source})
  # Every processor that runs our kernels has AVX2. Products and sums stay apart, so that a line's bits don't depend on the
  # instructions that its code was made for.
  target_compile_options(ducc0_${part} PRIVATE -w -mavx2 -mfma -ffp-contract=off)
  target_link_libraries(ducc0_${part} PRIVATE Threads::Threads)
  list(APPEND FACULA_DUCC0_OBJECTS ducc0_${part})
endforeach()
