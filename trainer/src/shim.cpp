// What the trainer asks of libtorch's C++ interface and tch does not bind: a node of autograd's graph whose backward pass
// is a Rust function, a tensor's gradient as something to write, tensors of memory that is not libtorch's, streams of
// devices, and libtorch's threads. Called by shim.rs alone.

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

namespace {

using at::Tensor;
using torch::autograd::Node;
using torch::autograd::variable_list;

// Computes the gradients of a function's inputs from those of its outputs, of which null ones are zeros. `wanted[i]` says
// whether that of input i is wanted; it goes to `results[i]`, made with `new`, else that stays null. False if it panicked.
using Backward = bool (*)(void* context, const Tensor* const* gradients, const bool* wanted, Tensor** results);
// Frees the context.
using Drop = void (*)(void* context);

struct RustNode : Node {
  RustNode(torch::autograd::edge_list&& edges, void* context, Backward backward, Drop drop)
      : Node(std::move(edges)), context(context), backward(backward), drop(drop) {}

  ~RustNode() override { release_variables(); }

  void release_variables() override {
    if (context != nullptr) drop(std::exchange(context, nullptr));
  }

  variable_list apply(variable_list&& outputs) override {
    variable_list inputs(num_outputs());
    if (context == nullptr) throw std::runtime_error("a backward pass for the second time, and what it needs is freed");
    auto wanted = std::make_unique<bool[]>(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) wanted[i] = task_should_compute_output(i);
    std::vector<const Tensor*> gradients;
    for (const Tensor& output : outputs) gradients.push_back(output.defined() ? &output : nullptr);
    std::vector<Tensor*> results(inputs.size(), nullptr);
    if (!backward(context, gradients.data(), wanted.get(), results.data()))
      throw std::runtime_error("a backward pass panicked");
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (results[i] == nullptr) continue;
      inputs[i] = std::move(*results[i]);
      delete results[i];
    }
    return inputs;
  }

  std::string name() const override { return "RustNode"; }

  void* context;
  Backward backward;
  Drop drop;
};

}  // namespace

extern "C" {

bool grappa_gradients_are_on() { return at::GradMode::is_enabled(); }

// Makes `outputs`, computed without autograd, functions of `inputs`. Takes `context`.
void grappa_attach(
    Tensor* const* outputs,
    size_t output_count,
    const Tensor* const* inputs,
    size_t input_count,
    void* context,
    Backward backward,
    Drop drop) {
  torch::autograd::edge_list edges;
  for (size_t i = 0; i < input_count; ++i) edges.push_back(torch::autograd::impl::gradient_edge(*inputs[i]));
  std::shared_ptr<RustNode> node(new RustNode(std::move(edges), context, backward, drop), torch::autograd::deleteNode);
  for (size_t i = 0; i < output_count; ++i) torch::autograd::create_gradient_edge(*outputs[i], node);
}

// Makes `gradient` the gradient of the leaf `tensor`: backward passes add to it in place.
void grappa_set_gradient(Tensor* tensor, const Tensor* gradient) { tensor->mutable_grad() = *gradient; }

// A tensor of `rows` x `columns` values at `data`, f32 or bf16, without a copy; when the last that refers to them is gone,
// `drop` frees `owner`. Null, and `owner` is the caller's, if it can't be made.
Tensor* grappa_view_memory(void* data, int64_t rows, int64_t columns, bool is_bf16, void* owner, Drop drop) try {
  auto options = at::TensorOptions().dtype(is_bf16 ? at::kBFloat16 : at::kFloat);
  return new Tensor(at::from_blob(data, {rows, columns}, [owner, drop](void*) { drop(owner); }, options));
} catch (...) {
  return nullptr;
}

// The tensor in memory that CUDA devices copy from by themselves: itself, or a copy. Null if there is no such memory to be had.
Tensor* grappa_pin(const Tensor* tensor) try {
  return new Tensor(tensor->pin_memory());
} catch (...) {
  return nullptr;
}

// A tensor of f32 in such memory; null if there is none to be had.
Tensor* grappa_pinned(int64_t values) try {
  return new Tensor(at::empty({values}, at::TensorOptions().dtype(at::kFloat).pinned_memory(true)));
} catch (...) {
  return nullptr;
}

// A stream of a CUDA device beside its current one, for `grappa_free_stream`; null if there is none to be had.
c10::Stream* grappa_new_stream(int device) try {
  c10::impl::VirtualGuardImpl cuda(c10::DeviceType::CUDA);
  return new c10::Stream(cuda.getStreamFromGlobalPool(c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device))));
} catch (...) {
  return nullptr;
}

void grappa_free_stream(c10::Stream* stream) { delete stream; }

// Calls `run`, for which the stream is the current one. The event, for `grappa_abandon`, is when what it has
// begun is done; null if it can't be had.
c10::Event* grappa_on_stream(const c10::Stream* stream, void (*run)(void*), void* context) try {
  c10::StreamGuard guard(*stream);
  run(context);
  auto event = std::make_unique<c10::Event>(stream->device_type());
  event->record(*stream);
  return event.release();
} catch (...) {
  return nullptr;
}

// The event is when what the current stream of a CUDA device has to do by now is done; for `grappa_abandon`. Null if it can't be had.
c10::Event* grappa_record(int device) try {
  c10::impl::VirtualGuardImpl cuda(c10::DeviceType::CUDA);
  auto event = std::make_unique<c10::Event>(c10::DeviceType::CUDA);
  event->record(cuda.getStream(c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device))));
  return event.release();
} catch (...) {
  return nullptr;
}

// Lets the current stream go on when the event has come, and keeps the memory of `tensors`, which are another stream's, for as
// long as what it does by now. False if that fails.
bool grappa_join(c10::Event* event, const Tensor* const* tensors, size_t count) try {
  c10::impl::VirtualGuardImpl device(event->device_type());
  c10::Stream current = device.getStream(event->device());
  event->block(current);
  for (size_t i = 0; i < count; ++i) tensors[i]->record_stream(current);
  return true;
} catch (...) {
  return false;
}

// Waits for the event. False if that fails.
bool grappa_wait(const c10::Event* event) try {
  event->synchronize();
  return true;
} catch (...) {
  return false;
}

// Waits for the event and frees it.
void grappa_abandon(c10::Event* event) {
  std::unique_ptr<c10::Event> owned(event);
  grappa_wait(event);
}

// Calls `run` once on each of libtorch's threads, and waits for all.
void grappa_on_each_thread(void (*run)(const void*), const void* context) {
  at::parallel_for(0, at::get_num_threads(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) run(context);
  });
}

}  // extern "C"
