# install.cmake - what `cmake --install` and CPack install: shared and static library, headers, pkg-config file, CMake package, ckl
# with its man page and completions.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# One object in which all other symbols are local: names of the library's inside cannot meet those of a program.
set(STATIC_LIBRARY ${CMAKE_BINARY_DIR}/libcutekernellib.a)
add_custom_command(
    OUTPUT ${STATIC_LIBRARY}
    COMMAND ${CMAKE_LINKER} -r -o static.o ${LIBRARY_OBJECTS}
    COMMAND ${CMAKE_OBJCOPY} -w --keep-global-symbol=ckl_* --keep-global-symbol=__tvm_ffi_ckl_* static.o
    COMMAND ${CMAKE_COMMAND} -E rm -f ${STATIC_LIBRARY}
    COMMAND ${CMAKE_AR} rcs ${STATIC_LIBRARY} static.o
    COMMAND ${CMAKE_COMMAND} -E rm static.o
    DEPENDS objects ffi ${LIBRARY_OBJECTS}
    COMMAND_EXPAND_LISTS VERBATIM)
add_custom_target(static_library ALL DEPENDS ${STATIC_LIBRARY})

# The man page says what `ckl help` says.
set(MAN_PAGE ${CMAKE_BINARY_DIR}/ckl.1)
add_custom_command(OUTPUT ${MAN_PAGE} COMMAND ${CMAKE_SOURCE_DIR}/packaging/man.sh $<TARGET_FILE:ckl> >${MAN_PAGE}
                   DEPENDS ckl packaging/man.sh)
add_custom_target(man_page ALL DEPENDS ${MAN_PAGE})

# lib/x86_64-linux-gnu has one folder more than lib.
file(RELATIVE_PATH PREFIX_OF_LIBRARY /prefix/${CMAKE_INSTALL_LIBDIR} /prefix)
if(CKL_OPENMP)
    set(PRIVATE_LIBRARIES ${OpenMP_C_FLAGS})
endif()
configure_file(packaging/cutekernellib.pc.in cutekernellib.pc @ONLY)
configure_package_config_file(packaging/cutekernellib-config.cmake.in cutekernellib-config.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/cutekernellib)
# While the major version is 0 a minor one may change structs.
write_basic_package_version_file(cutekernellib-config-version.cmake COMPATIBILITY SameMinorVersion)

install(TARGETS cutekernellib EXPORT cutekernellib)
install(TARGETS ckl)
install(EXPORT cutekernellib NAMESPACE cutekernellib:: FILE cutekernellib-targets.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/cutekernellib)
install(FILES ${STATIC_LIBRARY} DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/cutekernellib DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${CMAKE_BINARY_DIR}/cutekernellib.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${CMAKE_BINARY_DIR}/cutekernellib-config.cmake ${CMAKE_BINARY_DIR}/cutekernellib-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/cutekernellib)
install(FILES ${MAN_PAGE} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES packaging/completions/ckl.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME ckl)
install(FILES packaging/completions/_ckl DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
install(FILES packaging/completions/ckl.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

set(CPACK_PACKAGE_NAME cutekernellib)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "GPU operators in C, with the laboratory that checks and measures them")
set(CPACK_PACKAGE_CONTACT "CuTeKernelLib developers")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_STRIP_FILES ON)
include(CPack)
