# The flags of every file: what is warned about, and what the compiler may assume.

add_library(cy_warnings INTERFACE)
target_compile_options(cy_warnings INTERFACE
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wdouble-promotion
    -Wformat=2 -Wundef -Wvla -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition
    -Wcast-qual -Wcast-align -Wpointer-arith -Wwrite-strings -Wswitch-enum -Wnull-dereference
    -Wredundant-decls -fno-common -fvisibility=hidden
    # clang counts it to -Wconversion; CY_ASSERT(!"why") is how a place that is never reached reads.
    -Wno-string-conversion
    # Training must see NaN and infinity, and results must not depend on the compiler: never
    # -ffast-math, and a fused multiply-add only where it is written.
    -fno-math-errno -fno-trapping-math -ffp-contract=off)
if(CY_WERROR)
    target_compile_options(cy_warnings INTERFACE -Werror)
endif()
if(CY_DEBUG_ASSERTS OR CMAKE_BUILD_TYPE STREQUAL "Debug")
    target_compile_definitions(cy_warnings INTERFACE CY_DEBUG)
endif()
set(CMAKE_C_FLAGS_RELEASE "-O3")
set(CMAKE_C_FLAGS_DEBUG "-Og -g")
if(CY_SANITIZE)
    add_compile_options(-fsanitize=${CY_SANITIZE} -fno-omit-frame-pointer)
    if(CMAKE_BUILD_TYPE STREQUAL "Sample")
        add_compile_options(-g1) # functions and lines, which a report names
    else()
        add_compile_options(-g)
    endif()
    add_link_options(-fsanitize=${CY_SANITIZE})
    if(CY_SANITIZE MATCHES "undefined")
        add_compile_options(-fno-sanitize-recover=undefined)
    endif()
endif()
# gcc says so itself; arenas poison what nobody may touch, and tests know that memory is not only theirs.
if(CMAKE_C_COMPILER_ID MATCHES "Clang")
    if(CY_FUZZ OR CY_SANITIZE MATCHES "address")
        add_compile_definitions(__SANITIZE_ADDRESS__=1)
    elseif(CY_SANITIZE MATCHES "thread")
        add_compile_definitions(__SANITIZE_THREAD__=1)
    endif()
endif()
if(CY_COVERAGE)
    add_compile_options(--coverage -fprofile-update=atomic)
    add_link_options(--coverage)
endif()
if(CY_FUZZ)
    # The library reports what it reaches; only the targets bring the fuzzer's main.
    add_compile_options(-fsanitize=fuzzer-no-link)
    if(NOT CY_SANITIZE)
        add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined
            -fno-omit-frame-pointer -g)
        add_link_options(-fsanitize=address,undefined)
    endif()
endif()
