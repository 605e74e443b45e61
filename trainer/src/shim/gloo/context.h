// The part of gloo's Context that PyTorch's ProcessGroupGloo.hpp names. c10d.cpp never makes or uses one: its functions are
// called inside of libtorch only.
#pragma once

#include <chrono>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
