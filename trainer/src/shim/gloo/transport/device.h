// The names of gloo's transport that PyTorch's ProcessGroupGloo.hpp points to. c10d.cpp never makes or uses one.
#pragma once

namespace gloo::transport {

class Device;
class UnboundBuffer {
 public:
  virtual ~UnboundBuffer();
};

}  // namespace gloo::transport
