# The API reference, by Doxygen: `cmake --build build --target api` puts it into build/api/html. Any warning is an error.

configure_file(docs/Doxyfile.in Doxyfile @ONLY)
add_custom_target(api COMMAND doxygen ${PROJECT_BINARY_DIR}/Doxyfile VERBATIM)
if(VPMU_TESTS)
  add_test(NAME api_reference COMMAND sh -c
    "command -v doxygen >/dev/null || { echo 'skipped: no doxygen'; exit 77; }; doxygen ${PROJECT_BINARY_DIR}/Doxyfile")
  set_tests_properties(api_reference PROPERTIES LABELS full SKIP_RETURN_CODE 77)
endif()
