# Installs facula.h, extension.h and PyTorch's names for it, what a device implements, and what they reach, so that what is internal stays so. Set before: FACULA_SOURCES, FACULA_GENERATED,
# FACULA_INCLUDE_TO.
cmake_policy(VERSION 3.25)  # an install script starts without
set(open facula/facula.h facula/deploy/facula_c.h facula/extension.h facula/device/device.h torch/extension.h torch/script.h torch/torch.h
    c10/mobile/CPUCachingAllocator.h torch/data/datasets.h torch/data/datasets/base.h torch/data/example.h torch/nn/module.h)
set(found)
while(open)
  list(POP_FRONT open header)
  if(header IN_LIST found)
    continue()
  endif()
  list(APPEND found ${header})
  cmake_path(GET FACULA_SOURCES PARENT_PATH root)
  if(NOT EXISTS ${root}/${header})
    set(root ${FACULA_GENERATED})
  endif()
  file(STRINGS ${root}/${header} includes REGEX "^#include \"(facula|torch)/")
  list(TRANSFORM includes REPLACE "^#include \"([^\"]+)\".*" "\\1")
  list(APPEND open ${includes})
  cmake_path(GET header PARENT_PATH folder)
  file(INSTALL ${root}/${header} DESTINATION ${CMAKE_INSTALL_PREFIX}/${FACULA_INCLUDE_TO}/${folder})
endwhile()
