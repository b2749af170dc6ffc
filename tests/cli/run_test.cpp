// vpmu run as its user meets it: what goes where, and how each run ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/run_command.hpp"
#include "soft/images.hpp"

namespace vpmu {
namespace {

using nlohmann::json;
using soft::u32;
using soft::u8;
using soft::test::elf_image;
using soft::test::elf_program;
using soft::test::good_segment;
using soft::test::program_address;
using test::CommandResult;
using test::TemporaryDirectory;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

using Code = std::vector<u8>;

Code operator+(Code first, const Code& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

Code little_endian(u32 value) {
  return {static_cast<u8>(value), static_cast<u8>(value >> 8), static_cast<u8>(value >> 16),
          static_cast<u8>(value >> 24)};
}

// What guests are made of. 32-bit code.
const Code forever{0xEB, 0xFE};
const Code halt{0xF4};
const Code undefined{0x0F, 0x0B};
const Code cpuid{0x0F, 0xA2};

/// Writes the text to the serial line.
Code say(const std::string& text) {
  Code code{0x66, 0xBA, 0xF8, 0x03};
  for (const char c : text) code = code + Code{0xB0, static_cast<u8>(c), 0xEE};
  return code;
}

/// Writes EAX to the exit port.
const Code end_with_eax{0x66, 0xBA, 0xF4, 0x00, 0xEF};

Code end_with(u32 value) { return Code{0xB8} + little_endian(value) + end_with_eax; }

/// MOV [address], value.
Code store(u32 address, u32 value) { return Code{0xC7, 0x05} + little_endian(address) + little_endian(value); }

/// Sets up a stack and a GDT, and an IDT whose gate `vector` leads to `handler`; then goes on with `rest`.
Code with_handler(u8 vector, const Code& handler, const Code& rest) {
  constexpr u32 set_up_bytes = 19;
  constexpr u32 stack = 0x3000000;
  const u32 handler_at = program_address + set_up_bytes + static_cast<u32>(rest.size());
  const u32 tables_at = handler_at + static_cast<u32>(handler.size());
  const u32 gdt = tables_at + 12;
  const u32 idt = gdt + 16;
  Code code = Code{0x0F, 0x01, 0x15} + little_endian(tables_at) +      // lgdt
              Code{0x0F, 0x01, 0x1D} + little_endian(tables_at + 6) +  // lidt
              Code{0xBC} + little_endian(stack) + rest + handler;
  code = code + Code{0xFF, 0x00} + little_endian(gdt) + Code{0xFF, 0x07} + little_endian(idt);
  code = code + Code(8, 0) + Code{0xFF, 0xFF, 0, 0, 0, 0x9B, 0xCF, 0};
  code = code + Code(std::size_t{vector} * 8, 0);
  return code + Code{static_cast<u8>(handler_at),       static_cast<u8>(handler_at >> 8), 0x08, 0, 0, 0x8E,
                     static_cast<u8>(handler_at >> 16), static_cast<u8>(handler_at >> 24)};
}

class Run : public testing::Test {
 protected:
  std::string write_image(const std::vector<u8>& image, const std::string& name = "image.elf") {
    return files_.write(name, {image.begin(), image.end()});
  }
  /// Runs vpmu run with these arguments.
  static CommandResult vpmu_run(const std::string& arguments) { return test::run(VPMU_COMMAND " run " + arguments); }
  CommandResult run_code(const Code& code, const std::string& options = "") {
    return vpmu_run(write_image(elf_program(code)) + " " + options);
  }
  /// Runs these arguments, which are refused: status 2, one line, no output, and no file comes or changes.
  void expect_refused(const std::string& arguments, const std::string& expected) {
    SCOPED_TRACE(arguments);
    const std::string result_file = files_.write("result.json", "as before");
    const std::size_t entries = files_.entries();
    const bool names_json = arguments.find("--json") != std::string::npos;
    const CommandResult result = vpmu_run(arguments + (names_json ? "" : " --json " + result_file));
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, StartsWith("vpmu: "));
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
    EXPECT_THAT(result.err, HasSubstr(expected));
    EXPECT_EQ(test::read_file(result_file), "as before");
    EXPECT_EQ(files_.entries(), entries);
  }

  TemporaryDirectory files_;
};

const char* const machines[]{"--pmu virtual", "--backing mediated --profile intel-v5", "--pmu physical"};

std::string without_last_line(const std::string& text) { return text.substr(0, text.rfind('\n', text.size() - 2) + 1); }

// --- Output ---

TEST_F(Run, puts_what_the_guest_says_on_standard_output_and_a_table_on_standard_error) {
  const CommandResult result = run_code(say("hello\n") + end_with(0));
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out, "hello\n");
  EXPECT_THAT(result.err, StartsWith("result        the guest ended with 0\n"
                                     "instructions  16, of them 7 by emulation\n"
                                     "branches      0\n"));
  for (const char* row : {"cycles", "exits         port 7", "PMU accesses", "PMIs", "host calls", "health"}) {
    EXPECT_THAT(result.err, HasSubstr(std::string{"\n"} + row));
  }
}

TEST_F(Run, repeats_itself_but_for_the_wall_clock_on_the_last_line) {
  const std::string arguments = VPMU_GUESTS "/sampling.elf --append scale=5 --json ";
  const std::string first_file = files_.file("first.json");
  const std::string second_file = files_.file("second.json");
  const CommandResult first = vpmu_run(arguments + first_file);
  const CommandResult second = vpmu_run(arguments + second_file);
  ASSERT_EQ(first.status, 0) << first.out << first.err;
  EXPECT_EQ(first.out, second.out);
  EXPECT_EQ(without_last_line(first.err), without_last_line(second.err));
  EXPECT_THAT(without_last_line(first.err), Not(HasSubstr("wall")));
  EXPECT_THAT(first.err, ContainsRegex("\nwall +[0-9.]+ s, [0-9]+ million instructions a second\n$"));

  json one = json::parse(test::read_file(first_file));
  json other = json::parse(test::read_file(second_file));
  EXPECT_GT(one["wall"]["seconds"], 0);
  EXPECT_GT(one["pmis"], 0);
  EXPECT_THAT(first.err, HasSubstr("instructions  " + one["instructions"].dump() + ", of them "));
  one.erase("wall");
  other.erase("wall");
  EXPECT_EQ(one, other);
}

TEST_F(Run, stops_when_nobody_reads_its_output) {
  const Code chatter = say("x\n") + Code{0xEB, static_cast<u8>(-(2 + static_cast<int>(say("x\n").size())))};
  const std::string result_file = files_.file("result.json");
  const CommandResult result = test::run("{ " VPMU_COMMAND " run " + write_image(elf_program(chatter)) +
                                         " --timeout 60 --json " + result_file + "; echo $? >&2; } | head -n 1");
  EXPECT_EQ(result.err, "vpmu: cannot write to standard output: Broken pipe\n2\n");
  EXPECT_FALSE(std::filesystem::exists(result_file));
  EXPECT_EQ(files_.entries(), 1U);
  EXPECT_EQ(run_code(say("x") + end_with(0), ">/dev/full").err,
            "vpmu: cannot write to standard output: No space left on device\n");
}

// --- How a run ends ---

TEST_F(Run, ends_with_1_if_the_guest_wrote_anything_but_0_and_prints_all_of_it) {
  for (const u32 value : {1U, 256U, 0xDEADBEEFU}) {
    const CommandResult result = run_code(end_with(value));
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.err, StartsWith("result        the guest ended with " + std::to_string(value) + "\n"));
  }
}

TEST_F(Run, ends_with_3_after_a_triple_fault_and_says_where_and_why) {
  const std::string result_file = files_.file("result.json");
  const Code code = Code{0xBB} + little_endian(0x12345678) + cpuid + Code{0xBB} + little_endian(0x12345678) + undefined;
  const CommandResult result = run_code(code, "--json " + result_file);
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.err, StartsWith("result        the guest crashed: triple fault\n"
                                     "              last exception or interrupt: vector 6 (#UD)\n"
                                     "              rip 00000000001000fc  cpl 0\n"));
  EXPECT_THAT(result.err, HasSubstr("rbx 0000000012345678"));
  EXPECT_THAT(result.err, HasSubstr("last exits, newest first: shutdown, cpuid\n"));
  EXPECT_EQ(json::parse(test::read_file(result_file))["ending"], "the guest crashed: triple fault");
}

TEST_F(Run, ends_with_3_if_the_guest_halts_and_nothing_can_wake_it) {
  const Code interrupts_on{0xFB};
  // A timer that fires, but is masked.
  const Code masked_timer = store(0xFEE000F0, 0x1FF) + store(0xFEE00320, 0x30020) + store(0xFEE00380, 1000);
  for (const Code& code : {halt, interrupts_on + halt, masked_timer + interrupts_on + halt}) {
    for (const std::string machine : machines) {
      const CommandResult result = run_code(say("a") + code, machine);
      EXPECT_EQ(result.status, 3);
      EXPECT_EQ(result.out, "a");
      EXPECT_THAT(result.err, StartsWith("result        the guest halted for ever: HLT, and nothing can wake it\n"));
      EXPECT_THAT(result.err, HasSubstr("rip 000000000010"));
      EXPECT_THAT(result.err, HasSubstr("last exits, newest first: hlt"));
    }
  }
}

TEST_F(Run, ends_with_3_if_exceptions_go_on_without_end) {
  const CommandResult result = run_code(with_handler(6, undefined, undefined));
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.err, StartsWith("result        the guest crashed: exceptions, or iterations of one instruction, "
                                     "without end\n"
                                     "              last exception or interrupt: vector 6 (#UD)\n"
                                     "              rip 0000000000100105  cpl 0\n"));
  EXPECT_THAT(result.err, HasSubstr("last exits, newest first: stuck\n"));
}

TEST_F(Run, names_an_instruction_that_the_machine_does_not_know) {
  const std::string result_file = files_.file("result.json");
  // The handler steps over it: x87's FLD1, three times.
  const Code fld1{0xD9, 0xE8};
  const Code skip_it{0x83, 0x04, 0x24, 0x02, 0xCF};  // add dword [esp], 2; iret
  const Code three_times = Code{0xB9, 3, 0, 0, 0} + fld1 + Code{0xE2, 0xFC};
  const CommandResult result = run_code(with_handler(6, skip_it, three_times + end_with(0)), "--json " + result_file);
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.err, HasSubstr("\nunknown       fld1 (d9 e8) at 0x100108: #UD, 3 in all\n"));
  EXPECT_EQ(json::parse(test::read_file(result_file))["unknown_instructions"], json::array({"fld1 (d9 e8)"}));
}

TEST_F(Run, ends_with_4_after_as_many_instructions_as_it_was_given) {
  const Code cpuids = cpuid + cpuid + cpuid + Code{0xEB, 0xF8};
  for (const Code& code : {forever, cpuids}) {
    const CommandResult result = run_code(code, "--max-instructions 12345");
    EXPECT_EQ(result.status, 4);
    EXPECT_THAT(result.err, StartsWith("result        the limit of instructions was reached\ninstructions  12345, "));
  }
  EXPECT_EQ(run_code(end_with(0), "--max-instructions 3").status, 0);
  EXPECT_EQ(run_code(end_with(0), "--max-instructions 2").status, 4);
}

TEST_F(Run, ends_with_4_when_its_time_is_over) {
  // A 1 kHz timer whose handler only acknowledges it; the guest halts, and halts again.
  const Code timer = store(0xFEE000F0, 0x1FF) + store(0xFEE003E0, 0xB) + store(0xFEE00320, 0x20020) +
                     store(0xFEE00380, 25000) + Code{0xFB, 0xF4, 0xEB, 0xFD};
  const Code acknowledge = store(0xFEE000B0, 0) + Code{0xCF};
  const Code retry{0xCF};  // iret, back to the same undefined instruction
  // REP STOSD fills 64 MiB with JMPs to what follows; then through them: new code all the time.
  const Code jumps =
      Code{0xBF, 0, 0, 0, 2, 0xB9, 0, 0, 0, 1, 0xB8, 0xEB, 0, 0xEB, 0, 0xF3, 0xAB} + Code{0xB8, 0, 0, 0, 2, 0xFF, 0xE0};
  const std::pair<const char*, Code> cases[]{
      {"a loop", forever},
      {"exits", cpuid + Code{0xEB, 0xFC}},
      {"halts", with_handler(0x20, acknowledge, timer)},
      {"exceptions", with_handler(6, retry, undefined)},
      {"iterations of one instruction", Code{0xB9} + little_endian(~0U) + Code{0xF3, 0xAA, 0xEB, 0xF7}},
      {"new code", jumps},
  };
  for (const auto& [what, code] : cases) {
    SCOPED_TRACE(what);
    for (const std::string machine : machines) {
      const CommandResult result = run_code(code, "--timeout 0.2 --memory 128 " + machine);
      EXPECT_EQ(result.status, 4) << result.err;
      EXPECT_THAT(result.err, StartsWith("result        the limit of time was reached\n"));
    }
  }
}

TEST_F(Run, ends_with_130_if_interrupted_and_reports_what_the_guest_did) {
  const std::string image = write_image(elf_program(say("ready\n") + forever));
  for (const char* signal : {"INT", "TERM"}) {
    SCOPED_TRACE(signal);
    const std::string out = files_.write("out", "");
    const std::string err = files_.write("err", "");
    const std::string result_file = files_.write("result.json", "");
    const std::size_t entries = files_.entries();
    const CommandResult shell =
        test::run(VPMU_COMMAND " run " + image + " --timeout 60 --json " + result_file + " >" + out + " 2>" + err +
                  " & pid=$!; until grep -q ready " + out + "; do kill -0 $pid || exit 99; sleep 0.02; done; kill -" +
                  signal + " $pid; wait $pid");
    EXPECT_EQ(shell.status, 130);
    EXPECT_EQ(test::read_file(out), "ready\n");
    EXPECT_THAT(test::read_file(err), StartsWith("result        interrupted\n"));
    EXPECT_EQ(json::parse(test::read_file(result_file))["ending"], "interrupted");
    EXPECT_EQ(files_.entries(), entries);
  }
}

// --- Bad use, bad images ---

TEST_F(Run, refuses_bad_options_with_one_line) {
  const std::string image = write_image(elf_program(end_with(0)));
  expect_refused("", "image is required; see vpmu run --help");
  expect_refused(image + " --frobnicate", "unknown option --frobnicate; see vpmu run --help");
  expect_refused(image + " " + image, "not expected");
  expect_refused(image + " --profile fast", "unknown profile 'fast'; profiles: intel-v1");
  expect_refused(image + " --profile intel-v2,speed=9", "unknown profile key 'speed'; keys: gp");
  expect_refused(image + " --policy fast", "unknown policy 'fast'; policies: before-s0");
  expect_refused(image + " --policy best,speed=9", "unknown policy key 'speed'; keys: events");
  expect_refused(image + " --platform fast", "unknown platform fast; vpmu info lists them");
  expect_refused(image + " --pmu fast", "--pmu: fast not in {virtual,physical}");
  expect_refused(image + " --memory 0", "--memory: Value 0 not in range 1 to 3072");
  expect_refused(image + " --memory 4096", "--memory: Value 4096 not in range 1 to 3072");
  expect_refused(image + " --memory -1", "--memory");
  expect_refused(image + " --max-instructions 0", "--max-instructions: Value 0 not in range 1 to");
  expect_refused(image + " --max-instructions 1e6", "--max-instructions: Value 1e6 not in range");
  for (const char* time : {"0", "-1", "nan", "inf", "soon"}) {
    expect_refused(image + " --timeout " + time, "--timeout: a number of seconds above 0 is needed, not ");
  }
  expect_refused(image + " --skid -1", "--skid");
  expect_refused(image + " --append " + std::string(5000, 'a'), "command line is longer than 4096 bytes");
  expect_refused(image + " --event-filter " + files_.file("none"), "none: No such file or directory");
  expect_refused(image + " --event-filter ''", "No such file or directory");
}

TEST_F(Run, refuses_a_result_file_that_it_cannot_write_before_the_guest_runs) {
  const std::string image = write_image(elf_program(say("x") + end_with(0)));
  expect_refused(image + " --json " + files_.file("none/x"), "none/x: No such file or directory");
  expect_refused(image + " --json " + files_.file(""), "Is a directory");
  expect_refused(image + " --json ''", "cannot write a file without a name");
  const CommandResult full = vpmu_run(image + " --json /dev/full");
  EXPECT_EQ(full.status, 2);
  EXPECT_THAT(full.err, HasSubstr("\nvpmu: cannot write /dev/full: No space left on device\n"));
}

TEST_F(Run, refuses_what_is_no_image_with_one_line_that_names_it) {
  using soft::u64;
  const Code nothing = end_with(0);
  const std::vector<u8> good = elf_program(nothing);
  expect_refused(files_.file("missing"), "missing: No such file or directory");
  expect_refused(files_.file(""), "is not a regular file");
  expect_refused("/dev/zero", "/dev/zero is not a regular file");
  expect_refused(write_image({}, "empty"), "empty: image is empty");
  expect_refused(files_.write("text", "# A text\n"), "text: no multiboot header in the image's first 8192 bytes");
  expect_refused(VPMU_COMMAND, "no multiboot header");
  for (std::size_t bytes = 1; bytes < good.size(); bytes += 31) {
    expect_refused(write_image({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(bytes)}, "cut"), "cut: ");
  }

  const auto changed = [&](auto change) {
    std::vector<u8> image = good;
    Elf32_Ehdr header;
    Elf32_Phdr segment;
    std::memcpy(&header, image.data(), sizeof header);
    std::memcpy(&segment, image.data() + sizeof header, sizeof segment);
    change(header, segment);
    std::memcpy(image.data(), &header, sizeof header);
    std::memcpy(image.data() + sizeof header, &segment, sizeof segment);
    return write_image(image, "changed");
  };
  expect_refused(changed([](auto& header, auto&) { header.e_machine = EM_ARM; }), "changed: ELF image is not for x86");
  expect_refused(changed([](auto& header, auto&) { header.e_phoff = ~0U; }), "ELF program headers are cut off");
  expect_refused(changed([](auto& header, auto&) { header.e_phnum = 0xFFFF; }), "changed: ");
  expect_refused(changed([](auto&, auto& segment) { segment.p_memsz = 0xFFFFF000; }), "does not fit the machine's 64");
  expect_refused(changed([](auto&, auto& segment) { segment.p_filesz = segment.p_memsz = ~0U; }), "segment is cut off");
  expect_refused(changed([](auto&, auto& segment) { segment.p_offset = ~0U; }), "ELF segment is cut off");
  auto high = good_segment<Elf64_Phdr>();
  high.p_paddr = ~u64{0} - 0xFF;
  expect_refused(write_image(elf_image<Elf64_Ehdr>(ELFCLASS64, EM_X86_64, high, 0x1000F0)), "does not fit");
}

// --- Hostile guests ---

TEST_F(Run, runs_an_image_of_256_MiB_and_refuses_a_larger_one) {
  constexpr std::uintmax_t most = std::uintmax_t{256} << 20;
  std::vector<u8> image = soft::test::flat_image(end_with(7));
  std::ranges::fill(image.begin() + 20, image.begin() + 28, 0);  // all of the file, and no more
  const std::string path = write_image(image);
  std::filesystem::resize_file(path, most);
  EXPECT_EQ(vpmu_run(path + " --memory 3072").status, 1);
  std::filesystem::resize_file(path, most + 1);
  expect_refused(path + " --memory 3072", "is larger than 256 MiB");
}

TEST_F(Run, gives_all_the_memory_that_it_offers) {
  const Code load_eax_last{0xA1, 0xFC, 0xFF, 0xFF, 0xBF};
  EXPECT_THAT(run_code(store(0xBFFFFFFC, 1234567) + load_eax_last + end_with_eax, "--memory 3072").err,
              HasSubstr("the guest ended with 1234567\n"));
  EXPECT_THAT(run_code(store(0xBFFFFFFC, 1234567) + load_eax_last + end_with_eax, "--memory 3071").err,
              HasSubstr("the guest ended with 4294967295\n"));
}

TEST_F(Run, survives_a_page_table_that_is_its_own_directory_and_clears_itself) {
  constexpr u32 table = 0x200000;
  const Code paging_on = store(table, table | 3) + store(table + 0x800, 0x100003) +        // maps 0 to itself, 1 MiB
                         Code{0xB8} + little_endian(table) + Code{0x0F, 0x22, 0xD8} +      // mov cr3, eax
                         Code{0xB8} + little_endian(0x20) + Code{0x0F, 0x22, 0xE0} +       // mov cr4, eax: PAE
                         Code{0xB9} + little_endian(0xC0000080) + Code{0x0F, 0x32} +       // rdmsr EFER
                         Code{0x0D} + little_endian(0x100) + Code{0x0F, 0x30} +            // LME
                         Code{0xB8} + little_endian(0x80000011) + Code{0x0F, 0x22, 0xC0};  // mov cr0, eax
  const Code clear_and_reload = say("on\n") + store(0, 0) + Code{0x0F, 0x20, 0xD8, 0x0F, 0x22, 0xD8};
  const CommandResult result = run_code(paging_on + clear_and_reload);
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(result.out, "on\n");
  EXPECT_THAT(result.err, HasSubstr("triple fault\n              last exception or interrupt: vector 14 (#PF)\n"));
  // Through the table, all of its other entries too, for as long as the guest likes.
  const Code fill{0xBF, 8, 0, 0, 0, 0xB9, 0xFE, 0, 0, 0, 0xB8, 3, 0, 0x20, 0, 0xF3, 0xAB, 0xEB, 0xED};
  EXPECT_EQ(run_code(paging_on + fill, "--timeout 0.2").status, 4);
}

}  // namespace
}  // namespace vpmu
