# `make install PREFIX=...`: the program, the library, its headers, and what lets the builds of
# others find them: cyclotron.pc for pkg-config, a package for CMake.

include(GNUInstallDirs)

# What a program that links the library needs besides. A static library's needs are its users'.
set(CY_REQUIRES "jansson libpcre2-8 libutf8proc zlib libzstd hwloc libxxhash")
set(CY_LIBRARIES "-lm -lpthread")
if(CY_HAVE_DNNL)
    string(APPEND CY_LIBRARIES " -ldnnl -lgomp")
endif()
if(CY_HAVE_MPI)
    string(APPEND CY_REQUIRES " ${MPI_MODULE_NAME}")
endif()
if(CY_SHARED)
    set(CY_KIND SHARED)
    set(CY_PRIVATE ".private")
else()
    set(CY_KIND STATIC)
endif()
set(CY_LIBRARY_FILE
    ${CMAKE_${CY_KIND}_LIBRARY_PREFIX}cyclotron${CMAKE_${CY_KIND}_LIBRARY_SUFFIX})

configure_file(cmake/cyclotron.pc.in generated/cyclotron.pc @ONLY)
configure_file(cmake/cyclotron-config.cmake.in generated/cyclotron-config.cmake @ONLY)
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/generated/cyclotron-config-version.cmake
    COMPATIBILITY SameMinorVersion)

set(CY_CMAKE_FOLDER ${CMAKE_INSTALL_LIBDIR}/cmake/cyclotron)
install(TARGETS cyclotron RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS cyclotron_lib
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/cyclotron DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    FILES_MATCHING PATTERN "*.h")
install(FILES ${PROJECT_BINARY_DIR}/generated/cyclotron.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${PROJECT_BINARY_DIR}/generated/cyclotron-config.cmake
    ${PROJECT_BINARY_DIR}/generated/cyclotron-config-version.cmake
    DESTINATION ${CY_CMAKE_FOLDER})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# Made by the program from its option tables, when it can.
install(CODE "
    execute_process(COMMAND \"${PROJECT_SOURCE_DIR}/scripts/install_manual.sh\"
        \"$<TARGET_FILE:cyclotron>\"
        \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_MANDIR}/man1\"
        \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/bash-completion/completions\"
        COMMAND_ERROR_IS_FATAL ANY)")
