# What `cmake --install` puts in place: headers, the library (static and shared), the freestanding core, and the command
# with its man page and completion; found by find_package(vpmu) and by pkg-config.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# The library: the rooms behind include/vpmu/, in one piece. Of hosts and the kvm machine, what is public.
set(vpmu_objects
  $<TARGET_OBJECTS:vpmu_arch> $<TARGET_OBJECTS:vpmu_pmu> $<TARGET_OBJECTS:vpmu_backing>
  "$<FILTER:$<TARGET_OBJECTS:vpmu_host>,INCLUDE,/(clock|clock_system|linux_perf|linux_perf_system|signal_hints)[.]cpp>"
  "$<FILTER:$<TARGET_OBJECTS:vpmu_kvm>,INCLUDE,/(msr_routing|vcpu_pmu|rdpmc_sites|elf_image)[.]cpp>")
add_library(vpmu_shared SHARED ${vpmu_objects})
add_library(vpmu_static STATIC ${vpmu_objects})
set_target_properties(vpmu_shared PROPERTIES
  OUTPUT_NAME vpmu LINKER_LANGUAGE CXX VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} EXPORT_NAME vpmu)
set_target_properties(vpmu_static PROPERTIES OUTPUT_NAME vpmu LINKER_LANGUAGE CXX EXPORT_NAME static)
target_link_libraries(vpmu_shared PRIVATE Zydis::Zydis $<BUILD_INTERFACE:vpmu_rules>)
target_link_libraries(vpmu_static PRIVATE Zydis::Zydis)

# For ring 0: no red zone, general registers only, not position-independent. Needs memcpy, memmove, memset, memcmp, abort.
add_library(vpmu_core_static STATIC
  "$<FILTER:$<TARGET_OBJECTS:vpmu_core_freestanding>,EXCLUDE,/mediated_freestanding[.]cpp>")
set_target_properties(vpmu_core_static PROPERTIES OUTPUT_NAME vpmu_core LINKER_LANGUAGE CXX EXPORT_NAME core)

foreach(library vpmu_shared vpmu_static vpmu_core_static)
  target_compile_features(${library} INTERFACE cxx_std_20)
  target_include_directories(${library} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()

install(TARGETS vpmu_shared vpmu_static vpmu_core_static EXPORT vpmu)
install(TARGETS vpmu)
install(DIRECTORY include/vpmu TYPE INCLUDE FILES_MATCHING PATTERN "*.hpp")

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/vpmu)
install(EXPORT vpmu NAMESPACE vpmu:: FILE vpmu-targets.cmake DESTINATION ${package_folder})
configure_package_config_file(cmake/package/vpmu-config.cmake.in vpmu-config.cmake
  INSTALL_DESTINATION ${package_folder} NO_SET_AND_CHECK_MACRO)
# Before 1.0, a new minor version may break the interface.
write_basic_package_version_file(vpmu-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/vpmu-config.cmake ${PROJECT_BINARY_DIR}/vpmu-config-version.cmake
  DESTINATION ${package_folder})
# Wherever the prefix ends up, as the CMake package.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig
  OUTPUT_VARIABLE package_prefix)
configure_file(cmake/package/vpmu.pc.in vpmu.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/vpmu.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

configure_file(docs/vpmu.1.in vpmu.1 @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/vpmu.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES scripts/completion.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME vpmu)
