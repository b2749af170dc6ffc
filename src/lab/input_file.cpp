#include "lab/input_file.hpp"

#include <fcntl.h>
#include <lzma.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

namespace vpmu::lab {
namespace {

constexpr std::size_t chunk = 256UL << 10;
constexpr std::string_view xz_magic{
    "\xFD"
    "7zXZ\0",
    6};  // The .xz File Format, section 2.1.1.1
// `xz -9` needs 65 MiB to decode; a hostile header may ask for 4 GiB.
constexpr std::uint64_t xz_memory_limit = 128ULL << 20;

const char* describe(lzma_ret status) {
  switch (status) {
    case LZMA_FORMAT_ERROR:
      return "not an xz stream";
    case LZMA_OPTIONS_ERROR:
      return "xz stream with unsupported options";
    case LZMA_DATA_ERROR:
      return "corrupt xz data";
    case LZMA_BUF_ERROR:
      return "xz data end too early: the file is cut off";
    case LZMA_MEMLIMIT_ERROR:
      return "xz stream needs more than 128 MiB of memory to decode";
    case LZMA_MEM_ERROR:
      return "out of memory";
    default:
      return "xz decoder failed";
  }
}

}  // namespace

struct InputFile::State {
  std::string name;
  std::string error;
  std::size_t max_line = 0;
  int fd = -1;
  bool started = false;  // the kind of file is known
  bool compressed = false;
  bool raw_end = false;  // nothing more to read from fd
  bool text_end = false;
  bool complete = true;
  std::uint64_t line = 0;
  std::vector<char> text;  // the text window: [begin, end) not yet given
  std::size_t begin = 0;
  std::size_t end = 0;
  std::vector<std::uint8_t> raw;  // compressed bytes
  lzma_stream xz = LZMA_STREAM_INIT;

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    lzma_end(&xz);
    if (fd > STDIN_FILENO) ::close(fd);
  }

  /// Bytes read; 0 at the end; below 0 on an error, which is noted.
  ssize_t read_raw(void* to, std::size_t size) {
    // Not tried again after a signal: one that is caught is there to end it.
    const ssize_t got = ::read(fd, to, size);
    if (got < 0) error = std::strerror(errno);
    return got;
  }

  bool start() {
    started = true;
    while (end < xz_magic.size()) {
      const ssize_t got = read_raw(text.data() + end, chunk - end);
      if (got < 0) return false;
      if (got == 0) break;
      end += static_cast<std::size_t>(got);
    }
    if (std::string_view{text.data(), end}.starts_with(xz_magic)) {
      compressed = true;
      raw.resize(chunk);
      std::memcpy(raw.data(), text.data(), end);
      xz.next_in = raw.data();
      xz.avail_in = end;
      end = 0;
      const lzma_ret status = lzma_stream_decoder(&xz, xz_memory_limit, LZMA_CONCATENATED);
      if (status != LZMA_OK) {
        error = describe(status);
        return false;
      }
    }
    return true;
  }

  bool decode(std::size_t room) {
    xz.next_out = reinterpret_cast<std::uint8_t*>(text.data() + end);
    xz.avail_out = room;
    while (xz.avail_out == room && !text_end) {
      if (xz.avail_in == 0 && !raw_end) {
        const ssize_t got = read_raw(raw.data(), raw.size());
        if (got < 0) return false;
        raw_end = got == 0;
        xz.next_in = raw.data();
        xz.avail_in = static_cast<std::size_t>(got);
      }
      const lzma_ret status = lzma_code(&xz, raw_end ? LZMA_FINISH : LZMA_RUN);
      if (status == LZMA_STREAM_END) {
        text_end = true;
      } else if (status != LZMA_OK) {
        error = describe(status);
        return false;
      }
    }
    end += room - xz.avail_out;
    return true;
  }

  /// Gets more text behind `end`. False on an error, which is noted.
  bool fill() {
    if (!error.empty() || (!started && !start())) return false;
    if (begin != 0) {
      std::memmove(text.data(), text.data() + begin, end - begin);
      end -= begin;
      begin = 0;
    }
    const std::size_t room = text.size() - end;
    if (compressed) return decode(room);
    const ssize_t got = read_raw(text.data() + end, room);
    if (got < 0) return false;
    text_end = got == 0;
    end += static_cast<std::size_t>(got);
    return true;
  }
};

InputFile::InputFile(std::unique_ptr<State> state) : state_{std::move(state)} {}
InputFile::InputFile(InputFile&&) noexcept = default;
InputFile& InputFile::operator=(InputFile&&) noexcept = default;
InputFile::~InputFile() = default;

std::expected<InputFile, std::string> InputFile::open(const std::string& path, std::size_t max_line) {
  auto state = std::make_unique<State>();
  state->max_line = max_line;
  if (path == "-") {
    state->name = "standard input";
    state->fd = STDIN_FILENO;
  } else {
    state->name = path;
    state->fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (state->fd < 0) return std::unexpected{path + ": " + std::strerror(errno)};
  }
  state->text.resize(max_line + 2 + chunk);
  return InputFile{std::move(state)};
}

InputFile::Next InputFile::next(std::string_view& line) {
  State& s = *state_;
  std::size_t searched = 0;
  ++s.line;
  for (;;) {
    const char* const first = s.text.data() + s.begin;
    const std::size_t size = s.end - s.begin;
    const void* newline = size > searched ? std::memchr(first + searched, '\n', size - searched) : nullptr;
    if (newline != nullptr || (s.text_end && size != 0)) {
      const std::size_t length =
          newline != nullptr ? static_cast<std::size_t>(static_cast<const char*>(newline) - first) : size;
      if (length > s.max_line + 1) return Next::too_long;
      s.complete = newline != nullptr;
      s.begin += length + (s.complete ? 1 : 0);
      line = {first, length};
      if (s.complete && line.ends_with('\r')) line.remove_suffix(1);
      if (line.size() > s.max_line) return Next::too_long;
      return Next::line;
    }
    if (s.text_end) {
      --s.line;
      return Next::end;
    }
    if (size > s.max_line + 1) return Next::too_long;
    searched = size;
    if (!s.fill()) return Next::failed;
  }
}

std::uint64_t InputFile::line_number() const { return state_->line; }
bool InputFile::line_complete() const { return state_->complete; }
const std::string& InputFile::error() const { return state_->error; }
const std::string& InputFile::name() const { return state_->name; }

std::string_view InputFile::peek() {
  State& s = *state_;
  constexpr std::size_t wanted = 16;
  while (s.end - s.begin < wanted && !s.text_end && s.fill()) {
  }
  return {s.text.data() + s.begin, std::min(wanted, s.end - s.begin)};
}

}  // namespace vpmu::lab
