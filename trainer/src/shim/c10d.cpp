// The C++ half of `shim/c10d.rs`: PyTorch's TCPStore and ProcessGroupGloo. No exception leaves a function: it becomes a text, which
// the caller frees with `grappa_free_text`.

#define USE_C10D_GLOO 1

#include <chrono>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include <c10/util/Exception.h>
#include <c10/util/Flags.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

C10_DECLARE_int(caffe2_log_level);

namespace {

using std::chrono::milliseconds;

struct StoreHandle {
  c10::intrusive_ptr<c10d::TCPStore> tcp;
  // All keys have the same prefix here.
  c10::intrusive_ptr<c10d::Store> keys;
};

struct GroupHandle {
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group;
};

struct WorkHandle {
  c10::intrusive_ptr<c10d::Work> work;
};

// Results of functions.
constexpr int FAILED = -1;
constexpr int DONE = 0;
constexpr int NOT_YET = 1;

char* text_of(const std::string& text) {
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy != nullptr) std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

// Calls `run`; turns an exception into a text and `failed`.
template <typename Run, typename Result>
Result guarded(char** error, Result failed, Run run) {
  try {
    return run();
  } catch (const c10::Error& caught) {
    *error = text_of(caught.what_without_backtrace());
  } catch (const std::exception& caught) {
    *error = text_of(caught.what());
  } catch (...) {
    *error = text_of("unknown exception");
  }
  return failed;
}

// Starts an operation. One thread at a time does: c10d's flight recorder keeps the groups of a process in a map and adds to it without
// a lock, so two groups that start their first operation together would break it.
template <typename Start>
WorkHandle* started(Start start) {
  static std::mutex starting;
  const std::lock_guard<std::mutex> lock(starting);
  return new WorkHandle{start()};
}

}  // namespace

extern "C" {

void grappa_free_text(char* text) { std::free(text); }

// Keeps c10d's own messages for errors that the caller reports anyway off stderr.
void grappa_log_fatal_only() { FLAGS_caffe2_log_level = 3; }

// A connection to a TCPStore, or its server as well. Port 0 is any free port.
StoreHandle* grappa_store_open(
    const char* host, uint16_t port, bool is_server, int64_t timeout_ms, const char* prefix, char** error) {
  return guarded(error, static_cast<StoreHandle*>(nullptr), [&] {
    c10d::TCPStoreOptions options;
    options.port = port;
    options.isServer = is_server;
    options.waitWorkers = false;
    options.timeout = milliseconds(timeout_ms);
    auto tcp = c10::make_intrusive<c10d::TCPStore>(host, options);
    auto keys = c10::make_intrusive<c10d::PrefixStore>(prefix, tcp);
    return new StoreHandle{std::move(tcp), std::move(keys)};
  });
}

void grappa_store_free(StoreHandle* store) { delete store; }

uint16_t grappa_store_port(const StoreHandle* store) { return store->tcp->getPort(); }

int grappa_store_set(StoreHandle* store, const char* key, const uint8_t* value, size_t length, char** error) {
  return guarded(error, FAILED, [&] {
    store->keys->set(key, std::vector<uint8_t>(value, value + length));
    return DONE;
  });
}

// Sets a key that has no value. Passes the value that the key then has to `take`.
int grappa_store_set_once(
    StoreHandle* store,
    const char* key,
    const uint8_t* value,
    size_t length,
    void* context,
    void (*take)(void*, const uint8_t*, size_t),
    char** error) {
  return guarded(error, FAILED, [&] {
    std::vector<uint8_t> found = store->keys->compareSet(key, {}, std::vector<uint8_t>(value, value + length));
    take(context, found.data(), found.size());
    return DONE;
  });
}

// Passes the value of a key to `take`, if it has one.
int grappa_store_get(
    StoreHandle* store, const char* key, void* context, void (*take)(void*, const uint8_t*, size_t), char** error) {
  return guarded(error, FAILED, [&] {
    if (!store->keys->check({key})) return NOT_YET;
    std::vector<uint8_t> value = store->keys->get(key);
    take(context, value.data(), value.size());
    return DONE;
  });
}

int grappa_store_delete(StoreHandle* store, const char* key, char** error) {
  return guarded(error, FAILED, [&] {
    store->keys->deleteKey(key);
    return DONE;
  });
}

// Connects all ranks; `patience_ms` is for that, and `timeout_ms` for each operation of the group.
GroupHandle* grappa_group_new(
    StoreHandle* store, int rank, int size, int64_t patience_ms, int64_t timeout_ms, char** error) {
  return guarded(error, static_cast<GroupHandle*>(nullptr), [&] {
    // Takes the interfaces of GLOO_SOCKET_IFNAME, as PyTorch does.
    auto options = c10d::ProcessGroupGloo::Options::create_default(milliseconds(patience_ms));
    auto group = c10::make_intrusive<c10d::ProcessGroupGloo>(store->keys, rank, size, options);
    static_cast<c10d::Backend&>(*group).setTimeout(milliseconds(timeout_ms));
    return new GroupHandle{std::move(group)};
  });
}

void grappa_group_free(GroupHandle* group) { delete group; }

// Starts to replace the tensor by its sum over all ranks, or by the union of its bits.
WorkHandle* grappa_all_reduce(GroupHandle* group, const at::Tensor* tensor, bool unites, char** error) {
  return guarded(error, static_cast<WorkHandle*>(nullptr), [&] {
    std::vector<at::Tensor> tensors{*tensor};
    c10d::AllreduceOptions options;
    options.reduceOp = unites ? c10d::ReduceOp::BOR : c10d::ReduceOp::SUM;
    return started([&] { return group->group->allreduce(tensors, options); });
  });
}

// Starts to send a part of `input` to each rank, and to receive a part of `output` from each. Parts follow each other by rank, with these
// numbers of bytes.
WorkHandle* grappa_all_to_all(
    GroupHandle* group,
    const at::Tensor* output,
    const int64_t* output_bytes,
    const at::Tensor* input,
    const int64_t* input_bytes,
    char** error) {
  return guarded(error, static_cast<WorkHandle*>(nullptr), [&] {
    at::Tensor received = *output, sent = *input;
    const int ranks = group->group->getSize();
    std::vector<int64_t> received_bytes(output_bytes, output_bytes + ranks);
    std::vector<int64_t> sent_bytes(input_bytes, input_bytes + ranks);
    return started([&] { return group->group->alltoall_base(received, sent, received_bytes, sent_bytes); });
  });
}

void grappa_work_free(WorkHandle* work) { delete work; }

int grappa_work_wait(WorkHandle* work, int64_t timeout_ms, char** error) {
  try {
    work->work->wait(milliseconds(timeout_ms));
    return DONE;
  } catch (...) {
    // c10d throws if the time is over, too.
    if (!work->work->isCompleted()) return NOT_YET;
  }
  return guarded(error, FAILED, [&] {
    work->work->wait();
    return DONE;
  });
}

}  // extern "C"
