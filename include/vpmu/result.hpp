// A value or the reason why there is none. Errors here are values: the library throws nothing.
#pragma once

#include <cstdlib>
#include <type_traits>

namespace vpmu {

/// Either a value of type T or an error of type E. Both are small and trivially copyable.
template <class T, class E>
class [[nodiscard]] Result {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_copyable_v<E>);

 public:
  constexpr Result(T value) : value_{value}, ok_{true} {}   // NOLINT(google-explicit-constructor): reads as a value
  constexpr Result(E error) : error_{error}, ok_{false} {}  // NOLINT(google-explicit-constructor): reads as an error

  [[nodiscard]] constexpr bool ok() const { return ok_; }
  constexpr explicit operator bool() const { return ok_; }

  /// The value. Asking for one that is not there ends the program: check ok() first.
  [[nodiscard]] constexpr T value() const {
    if (!ok_) std::abort();
    return value_;
  }
  [[nodiscard]] constexpr T operator*() const { return value(); }
  [[nodiscard]] constexpr T value_or(T other) const { return ok_ ? value_ : other; }

  /// The error. Asking for one that is not there ends the program.
  [[nodiscard]] constexpr E error() const {
    if (ok_) std::abort();
    return error_;
  }

 private:
  union {
    T value_;
    E error_;
  };
  bool ok_;
};

/// Success, or the reason of failure.
template <class E>
class [[nodiscard]] Status {
 public:
  constexpr Status() = default;
  constexpr Status(E error) : error_{error}, ok_{false} {}  // NOLINT(google-explicit-constructor): reads as an error

  [[nodiscard]] constexpr bool ok() const { return ok_; }
  constexpr explicit operator bool() const { return ok_; }
  [[nodiscard]] constexpr E error() const {
    if (ok_) std::abort();
    return error_;
  }

 private:
  E error_{};
  bool ok_ = true;
};

}  // namespace vpmu
