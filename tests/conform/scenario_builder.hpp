// Scenario lines for tests.
#pragma once

#include <string>

namespace vpmu::test {

/// A scenario of the default Intel guest (8 + 3 counters of 48 bits, full-width writes) with these operations, and more
/// fields behind them if given.
inline std::string intel_scenario(const std::string& operations, const std::string& more = {},
                                  const std::string& name = "test", const std::string& tags = {}) {
  return R"({"name":")" + name + R"(","tags":[)" + tags +
         R"(],"vendor":"intel","mode":"emulated",)"
         R"("host":{"version":5,"gp":8,"fixed":3,"gp_width":48,"fixed_width":48,"tsx":false},)"
         R"("pmu":{"present":true,"version":2,"gp":8,"gp_width":48,"events_len":7,"events_unavailable":"0x0",)"
         R"("fixed":3,"fixed_width":48,"cpuid7_ebx":"0x0","pdcm":true,"perf_capabilities":"0x2000","ds":false},)"
         R"("derived":{"version":2,"gp":8,"fixed":3,"in_tx":false,"full_width_writes":true},)"
         R"("ops":[)" +
         operations + "]" + more + "}";
}

}  // namespace vpmu::test
