# Makes `find_package(shardplan)` work from outside: targets shardplan::plans, ::planner, ::cost,
# ::simulator, ::kernels, ::runtime, and the data folder that the programs read.
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/shardplan)

install(EXPORT shardplan_targets NAMESPACE shardplan:: DESTINATION ${package_folder})
configure_package_config_file(
  ${CMAKE_CURRENT_LIST_DIR}/shardplanConfig.cmake.in ${PROJECT_BINARY_DIR}/shardplanConfig.cmake
  INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/shardplanConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/shardplanConfig.cmake
              ${PROJECT_BINARY_DIR}/shardplanConfigVersion.cmake
        DESTINATION ${package_folder})

install(DIRECTORY ${PROJECT_SOURCE_DIR}/plans/ DESTINATION ${CMAKE_INSTALL_DATADIR}/shardplan
        FILES_MATCHING PATTERN "*.yaml" PATTERN "*.json" PATTERN "*.bin")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
