# How everything is compiled.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# Plain x86-64: the machine's vector units are used by generated kernels and by the libraries, which choose at run time.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g0 -DNDEBUG -mtune=generic")
# Checked: assertions of ours and of the standard library, and every graph and nest is verified (FACULA_VERIFY).
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1 -D_GLIBCXX_ASSERTIONS")
add_compile_options(-Wall -Wextra -Wno-missing-field-initializers)  # fields that are not named keep their defaults
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  add_compile_options(-Wno-dangling-reference)  # it takes what tables give to a temporary key for a part of the key
endif()
add_link_options(-Wl,--as-needed)
add_link_options(-Wl,--build-id=sha1)  # plans on a disk belong to one build (run/stored_plan.h)
# Calls within a library need no table of addresses and may be inlined: nobody replaces our functions from outside.
add_compile_options(-fno-semantic-interposition -fvisibility-inlines-hidden)
add_link_options(-Wl,-Bsymbolic-functions)

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Precompiled headers are known by their digests (standard_headers.cmake); no source asks for the time.
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_PCH_EXTSUM=1 ${CCACHE})
endif()
find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# Sanitizers end the program at the first finding. LLVM has no run-time type information, which `vptr` would need.
if(FACULA_SANITIZE)
  add_compile_options(-fsanitize=${FACULA_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${FACULA_SANITIZE})
  if(FACULA_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize=vptr)
  endif()
endif()
if(FACULA_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(FACULA_VERIFY)
  add_compile_definitions(FACULA_VERIFY_DEFAULT=true)
endif()
