#include "runtime/print.hpp"

#include <array>

#include "runtime/processor.hpp"

namespace vpmu::guest {
namespace {

/// The UART of a virtual machine takes a byte at any time: its line status is not asked for, since each look would be
/// one more exit.
void put(char character) {
  constexpr std::uint16_t serial_port = 0x3F8;
  port_out(serial_port, static_cast<std::uint8_t>(character));
}

void put(Text text) {
  for (std::size_t i = 0; i < text.length; ++i) put(text.start[i]);
}

void put(std::uint64_t value, std::uint64_t base) {
  std::array<char, 20> digits{};
  std::size_t count = 0;
  do {
    digits[count++] = "0123456789ABCDEF"[value % base];
    value /= base;
  } while (value != 0);
  while (count > 0) put(digits[--count]);
}

}  // namespace

void Argument::write(bool hexadecimal) const {
  if (kind_ == Kind::text) {
    put(text_);
    return;
  }
  if (kind_ == Kind::negative) put('-');
  if (hexadecimal) put(Text{"0x"});
  put(number_, hexadecimal ? 16 : 10);
}

void print_arguments(Text format, const Argument* arguments, std::size_t count) {
  std::size_t next = 0;
  for (std::size_t i = 0; i < format.length; ++i) {
    const Text rest{format.start + i, format.length - i};
    const bool decimal = rest.length >= 2 && Text{rest.start, 2} == "{}";
    const bool hexadecimal = rest.length >= 3 && Text{rest.start, 3} == "{x}";
    if ((decimal || hexadecimal) && next < count) {
      arguments[next++].write(hexadecimal);
      i += decimal ? 1 : 2;
    } else {
      put(format.start[i]);
    }
  }
}

}  // namespace vpmu::guest
