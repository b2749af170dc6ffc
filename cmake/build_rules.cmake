# How every target of the project is compiled, and the functions that declare its targets.

set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
endif()

# g++ and clang differ in what -Wconversion covers: sign conversions are left out of both.
add_library(vpmu_rules INTERFACE)
target_compile_options(vpmu_rules INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
  -Wnon-virtual-dtor -Woverloaded-virtual>)
if(VPMU_WERROR)
  target_compile_options(vpmu_rules INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(VPMU_SANITIZE)
  target_compile_options(vpmu_rules INTERFACE
    -fsanitize=${VPMU_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(vpmu_rules INTERFACE -fsanitize=${VPMU_SANITIZE})
endif()
# clang's static ThreadSanitizer takes operator new for itself; with the shared one, a test may count allocations.
if(VPMU_SANITIZE STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libclang_rt.tsan-${CMAKE_SYSTEM_PROCESSOR}.so
    OUTPUT_VARIABLE tsan_runtime OUTPUT_STRIP_TRAILING_WHITESPACE)
  get_filename_component(tsan_folder ${tsan_runtime} DIRECTORY)
  target_link_options(vpmu_rules INTERFACE -shared-libsan -Wl,-rpath,${tsan_folder})
endif()
if(VPMU_FUZZ)
  target_compile_options(vpmu_rules INTERFACE -fsanitize=fuzzer-no-link)
endif()
target_include_directories(vpmu_rules INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)

# vpmu_room(NAME SOURCES... [LINK LIBS...]): one room of src/ as a static library named vpmu_NAME.
function(vpmu_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;LINK" ${ARGN})
  add_library(vpmu_${name} STATIC ${ROOM_SOURCES})
  target_link_libraries(vpmu_${name} PUBLIC vpmu_rules ${ROOM_LINK})
endfunction()

# vpmu_test(NAME SOURCES... [LINK LIBS...] [LABELS LABELS...]): one GoogleTest program, run by ctest as a single test
# named NAME. Labels: `threads` also runs it under ThreadSanitizer, `full` leaves it to `./test --all`.
function(vpmu_test name)
  cmake_parse_arguments(TEST "" "" "SOURCES;LINK;LABELS" ${ARGN})
  add_executable(${name} ${TEST_SOURCES})
  target_link_libraries(${name} PRIVATE ${TEST_LINK} vpmu_rules GTest::gmock GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${TEST_LABELS}")
endfunction()

# vpmu_fuzz(NAME SOURCES... [LINK LIBS...]): one libFuzzer program, bin/NAME (NAME begins with fuzz_). Its seeds, if any,
# are the files of fuzz/corpus/NAME. The target `fuzzers` builds them all.
if(VPMU_FUZZ)
  add_custom_target(fuzzers)
endif()
function(vpmu_fuzz name)
  cmake_parse_arguments(FUZZ "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${FUZZ_SOURCES})
  target_link_libraries(${name} PRIVATE ${FUZZ_LINK} vpmu_rules)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  add_dependencies(fuzzers ${name})
endfunction()
