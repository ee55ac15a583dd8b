# Toolchain: builds for aarch64 on an x86-64 Debian or Ubuntu and runs what it builds under qemu.
#
#     scripts/setup_cross.sh
#     cmake -S . -B build-aarch64 -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64.cmake
#
# oneDNN and MPI are left out: the folder of libraries has neither.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)

set(CY_SYSROOT ${CMAKE_CURRENT_LIST_DIR}/../build-aarch64/sysroot
    CACHE PATH "The folder that scripts/setup_cross.sh filled")
get_filename_component(CMAKE_SYSROOT ${CY_SYSROOT} REALPATH)
if(NOT EXISTS ${CMAKE_SYSROOT}/complete)
    message(FATAL_ERROR "no aarch64 libraries in ${CMAKE_SYSROOT}: run scripts/setup_cross.sh")
endif()

set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L ${CMAKE_SYSROOT})
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

# Programs of this machine; headers, libraries and what pkg-config says of the other.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR}
    ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig)

set(CY_WITH_DNNL OFF CACHE BOOL "")
set(CY_WITH_MPI OFF CACHE BOOL "")
