# Warnings and sanitizers live in one interface target that is not exported.
add_library(shardplan_build_flags INTERFACE)
target_compile_options(shardplan_build_flags INTERFACE
  -Wall -Wextra -Wpedantic -Werror -Wshadow -Wconversion -Wno-sign-conversion)
if(SHARDPLAN_SANITIZE)
  target_compile_options(shardplan_build_flags INTERFACE
    -fsanitize=${SHARDPLAN_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(shardplan_build_flags INTERFACE -fsanitize=${SHARDPLAN_SANITIZE})
endif()

# shardplan_library(NAME HEADERS ... SOURCES ... PUBLIC libs ... PRIVATE libs ...): one library target a
# folder, exported as shardplan::NAME, with its headers included from the root of the tree.
function(shardplan_library name)
  cmake_parse_arguments(arg "" "" "HEADERS;SOURCES;PUBLIC;PRIVATE" ${ARGN})
  set(target shardplan_${name})
  add_library(${target} STATIC ${arg_SOURCES})
  add_library(shardplan::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}
                 FILES ${arg_HEADERS})
  target_link_libraries(${target} PUBLIC ${arg_PUBLIC}
                        PRIVATE ${arg_PRIVATE} $<BUILD_INTERFACE:shardplan_build_flags>)
  install(TARGETS ${target} EXPORT shardplan_targets
          FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/shardplan)
endfunction()
