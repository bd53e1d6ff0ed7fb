# Warnings and sanitizers live in one interface target that no user of the libraries inherits.
add_library(shardplan_build_flags INTERFACE)
target_compile_options(shardplan_build_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:
  -Wall -Wextra -Wpedantic -Werror -Wshadow -Wconversion -Wno-sign-conversion
  -Wno-missing-field-initializers>)  # designated initialisers leave the defaults in place
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # What g++ finds while optimising differs from version to version and is often false, e.g. inside
  # std::string: it is shown, but does not stop a build.
  target_compile_options(shardplan_build_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:
    -Wno-error=array-bounds -Wno-error=maybe-uninitialized -Wno-error=restrict
    -Wno-error=stringop-overflow -Wno-error=stringop-overread>)
  if(CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    target_compile_options(shardplan_build_flags INTERFACE
      $<$<COMPILE_LANGUAGE:CXX>:-Wno-error=dangling-reference>)
  endif()
endif()
if(SHARDPLAN_SANITIZE)
  target_compile_options(shardplan_build_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:
    -fsanitize=${SHARDPLAN_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer>)
  target_link_options(shardplan_build_flags INTERFACE -fsanitize=${SHARDPLAN_SANITIZE})
endif()

# What most sources include costs half of a build without optimisation. Off by default: compiler
# caches do not like precompiled headers, and a build without them finds what a source forgot.
function(shardplan_precompile_headers target)
  get_target_property(sources ${target} SOURCES)
  list(LENGTH sources count)
  if(NOT SHARDPLAN_PRECOMPILE_HEADERS OR count LESS 5)
    return()
  endif()
  target_precompile_headers(${target} PRIVATE
    <algorithm> <array> <cmath> <cstdint> <filesystem> <fstream> <functional> <map> <memory>
    <optional> <set> <span> <string> <string_view> <utility> <variant> <vector>
    <boost/graph/adjacency_list.hpp> <fmt/format.h> <fmt/ranges.h> ${ARGN})
endfunction()

# shardplan_library(NAME HEADERS ... SOURCES ... PUBLIC libs ... PRIVATE libs ...): one library
# target a folder, exported as shardplan::NAME, whose headers are included from the root of the
# tree and installed under the same path.
function(shardplan_library name)
  cmake_parse_arguments(arg "" "" "HEADERS;SOURCES;PUBLIC;PRIVATE" ${ARGN})
  set(target shardplan_${name})
  add_library(${target} STATIC ${arg_SOURCES})
  add_library(shardplan::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/shardplan>)
  target_link_libraries(${target} PUBLIC ${arg_PUBLIC}
                        PRIVATE ${arg_PRIVATE} $<BUILD_INTERFACE:shardplan_build_flags>)
  shardplan_precompile_headers(${target})
  install(TARGETS ${target} EXPORT shardplan_targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})

  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  foreach(header IN LISTS arg_HEADERS)
    get_filename_component(subfolder ${header} DIRECTORY)
    install(FILES ${header}
            DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/shardplan/${folder}/${subfolder})
  endforeach()
endfunction()

# shardplan_plugin_part(TARGET): what is compiled for a plug-in, of which nothing but its entry can
# be seen from outside.
function(shardplan_plugin_part target)
  target_compile_features(${target} PRIVATE cxx_std_20)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON
                                             CXX_VISIBILITY_PRESET hidden)
  target_compile_definitions(${target} PRIVATE SHARDPLAN_VERSION="${PROJECT_VERSION}")
  target_link_libraries(${target} PRIVATE shardplan::runtime fmt::fmt shardplan_build_flags)
endfunction()

# shardplan_plugin(TARGET): a library, of sources or of such parts, that is opened at run time.
function(shardplan_plugin target)
  shardplan_plugin_part(${target})
  target_link_options(${target} PRIVATE -Wl,--as-needed -Wl,--exclude-libs,ALL)
  if(NOT SHARDPLAN_SANITIZE)  # sanitizers are the program's
    target_link_options(${target} PRIVATE -Wl,--no-undefined)
  endif()
endfunction()
