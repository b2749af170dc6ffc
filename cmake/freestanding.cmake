# The core as ring 0 builds it: no host, no runtime, nothing but five C functions from outside.

add_library(vpmu_core_freestanding OBJECT
  src/arch/registers.cpp src/arch/profiles.cpp src/arch/cpuid.cpp
  src/pmu/virtual_pmu.cpp src/pmu/register_file.cpp src/pmu/event_filter.cpp src/pmu/policy.cpp
  src/pmu/snapshot.cpp src/pmu/explain.cpp
  src/pmu/descriptions.cpp
  src/backing/emulated.cpp src/backing/mediated.cpp src/backing/mediated_freestanding.cpp)
set_target_properties(vpmu_core_freestanding PROPERTIES POSITION_INDEPENDENT_CODE OFF)
target_include_directories(vpmu_core_freestanding PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_compile_options(vpmu_core_freestanding PRIVATE -O2 -ffreestanding -mgeneral-regs-only -mno-red-zone
  -fno-exceptions -fno-rtti -fno-threadsafe-statics -fno-stack-protector -fno-pic -fno-pie -fno-sanitize=all
  -U_GLIBCXX_ASSERTIONS -Wall -Wextra -Werror)

if(VPMU_TESTS)
  add_test(NAME core_freestanding_symbols
    COMMAND ${PROJECT_SOURCE_DIR}/scripts/check_freestanding_symbols.sh $<TARGET_OBJECTS:vpmu_core_freestanding>
    COMMAND_EXPAND_LISTS)
endif()
