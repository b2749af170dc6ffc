"""Prints the compile commands that clang-tidy is to use: tidy_database.py COMPILE_COMMANDS ROOM...

Keeps the C++ files below these folders, each once: the core is also compiled freestanding, and one look at it is enough.
Drops options that only g++ knows, and one under which clang 19 rejects the standard library's headers.
"""

import json
import sys

DROPPED = ("-fno-gcse", "-fno-crossjumping", "-mgeneral-regs-only")


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        commands = json.load(file)
    kept = {}
    for entry in commands:
        if entry["file"].endswith(".cpp") and entry["file"].startswith(tuple(room + "/" for room in sys.argv[2:])):
            entry["command"] = " ".join(word for word in entry["command"].split(" ") if word not in DROPPED)
            hosted = "-ffreestanding" not in entry["command"]
            if entry["file"] not in kept or hosted:
                kept[entry["file"]] = entry
    json.dump(list(kept.values()), sys.stdout, indent=1)


if __name__ == "__main__":
    main()
