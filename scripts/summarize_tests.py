"""Counts test results: summarize_tests.py DIRECTORY

The directory holds ctest.junit, written by ctest, and NAME.xml of each GoogleTest program NAME. A program with such a
file counts test by test, any other ctest entry as one. Lists failures and skips, then prints the totals. Exit status
1 if a test failed or none ran.
"""

import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def read(path):
    try:
        return list(ElementTree.parse(path).getroot().iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return None


def last_line(text):
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    return lines[-1] if lines else ""


def gtest_results(path):
    """Yields (name, 'passed', 'failed' or 'skipped', reason) of each test of one program."""
    for case in read(path) or []:
        if case.get("name"):
            name = f"{path.stem}: {case.get('classname')}.{case.get('name')}"
        else:
            name = f"{path.stem}: outside of its tests"
        skipped = case.find("skipped")
        if case.find("failure") is not None:
            yield name, "failed", ""
        elif case.get("status") == "notrun":
            yield name, "skipped", "disabled"
        elif skipped is not None or case.get("result") == "skipped":
            yield name, "skipped", last_line(skipped.text if skipped is not None else "")
        else:
            yield name, "passed", ""


def ctest_result(case):
    name, status = case.get("name"), case.get("status")
    if status == "run":
        return name, "passed", ""
    if status in ("notrun", "disabled"):
        skipped = case.find("skipped")
        message = skipped.get("message", "") if skipped is not None else status
        # A test that chose to skip says why in its output; one that could not be run at all has failed.
        if status == "disabled" or message.startswith("SKIP_"):
            return name, "skipped", last_line(case.findtext("system-out")) or message
        return name, "failed", message
    return name, "failed", ""


def main():
    directory = pathlib.Path(sys.argv[1])
    results = []
    programs = {path.stem: list(gtest_results(path)) for path in sorted(directory.glob("*.xml"))}
    for tests in programs.values():
        results += tests
    for case in read(directory / "ctest.junit") or []:
        name, outcome, reason = ctest_result(case)
        tests = programs.get(name)
        if not tests:
            results.append((name, outcome, reason))
        elif outcome == "failed" and all(test[1] != "failed" for test in tests):
            results.append((f"{name}: outside of its tests", "failed", ""))

    count = {"passed": 0, "failed": 0, "skipped": 0}
    for name, outcome, reason in results:
        count[outcome] += 1
    print()
    for outcome in ("skipped", "failed"):
        for name, result, reason in results:
            if result == outcome:
                print(f"{outcome.upper()} {name}" + (f": {reason}" if reason else ""))
    ran = count["passed"] + count["failed"]
    if ran == 0:
        print("No test ran: that is a failure.")
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**count))
    return 1 if count["failed"] or ran == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
