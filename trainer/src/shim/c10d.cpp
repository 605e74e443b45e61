// The C++ half of `shim/c10d.rs`: PyTorch's ProcessGroupGloo, and the client of its TCPStore. No exception leaves a function: it becomes a text, which
// the caller frees with `grappa_free_text`.

#define USE_C10D_GLOO 1

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <c10/util/Exception.h>
#include <c10/util/Flags.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

C10_DECLARE_int(caffe2_log_level);

namespace {

using std::chrono::milliseconds;

struct StoreHandle {
  c10::intrusive_ptr<c10d::TCPStore> tcp;
};

struct GroupHandle {
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group;
};

using Work = c10::intrusive_ptr<c10d::Work>;

struct WorkHandle {
  // An operation of c10d, or else messages that a thread waits for.
  Work work;
  std::future<void> messages;
};

// Posted receives.
struct ReceivesHandle {
  std::vector<Work> works;
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

// A century: c10d adds it to its clock.
constexpr milliseconds NEVER(100LL * 365 * 24 * 3600 * 1000);

// Starts an operation. One thread at a time does: c10d's flight recorder keeps the groups of a process in a map and adds to it without
// a lock, so two groups that start their first operation together would break it.
template <typename Start>
Work started(Start start) {
  static std::mutex starting;
  const std::lock_guard<std::mutex> lock(starting);
  return start();
}

using Take = void (*)(void*, const uint8_t*, size_t);
using SetKey = int (*)(void*, const char*, const uint8_t*, size_t, void*, Take);
using GetKey = int (*)(void*, const char*, void*, Take);
using FreeKeys = void (*)(void*);

void take_bytes(void* context, const uint8_t* bytes, size_t length) {
  auto* out = static_cast<std::vector<uint8_t>*>(context);
  out->insert(out->end(), bytes, bytes + length);
}

// A key-value store of Rust, where Gloo finds the other processes. It has what Gloo uses: keys that are set, and waited for.
class Keys final : public c10d::Store {
 public:
  Keys(void* keys, SetKey set, GetKey get, FreeKeys free_keys, milliseconds timeout)
      : c10d::Store(timeout), keys_(keys), set_(set), get_(get), free_(free_keys) {}
  Keys(const Keys&) = delete;
  ~Keys() override { free_(keys_); }

  // It may be used by any thread, so it is its own copy.
  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::intrusive_ptr<c10d::Store>::reclaim_copy(this);
  }

  using c10d::Store::set;
  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    std::vector<uint8_t> text;
    if (set_(keys_, key.c_str(), value.data(), value.size(), &text, take_bytes) == FAILED) fail(text);
  }

  std::vector<uint8_t> get(const std::string& key) override {
    std::vector<uint8_t> value;
    const auto until = std::chrono::steady_clock::now() + timeout_;
    while (!find(key, value)) pause(key, until);
    return value;
  }

  bool check(const std::vector<std::string>& keys) override {
    std::vector<uint8_t> value;
    return std::all_of(keys.begin(), keys.end(), [&](const std::string& key) { return find(key, value); });
  }

  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }

  void wait(const std::vector<std::string>& keys, const milliseconds& timeout) override {
    const auto until = std::chrono::steady_clock::now() + timeout;
    while (!check(keys)) pause(keys.front(), until);
  }

  int64_t add(const std::string&, int64_t) override { return unused("add"); }
  bool deleteKey(const std::string&) override { return unused("deleteKey") != 0; }
  int64_t getNumKeys() override { return unused("getNumKeys"); }

 private:
  bool find(const std::string& key, std::vector<uint8_t>& value) {
    value.clear();
    const int code = get_(keys_, key.c_str(), &value, take_bytes);
    if (code == FAILED) fail(value);
    return code == DONE;
  }

  void pause(const std::string& key, std::chrono::steady_clock::time_point until) {
    if (std::chrono::steady_clock::now() > until) throw std::runtime_error("another rank did not set " + key + " in time");
    std::this_thread::sleep_for(milliseconds(5));
  }

  [[noreturn]] void fail(const std::vector<uint8_t>& text) {
    throw std::runtime_error(std::string(text.begin(), text.end()));
  }

  [[noreturn]] int64_t unused(const char* name) { throw std::runtime_error(std::string(name) + " is not for Gloo"); }

  void* keys_;
  SetKey set_;
  GetKey get_;
  FreeKeys free_;
};

// A part of a tensor that another rank sends or gets.
struct Part {
  int rank;
  at::Tensor tensor;
};

// The parts of all other ranks, unless they are empty. The first is that of the next rank, so that not all ranks send to the same one
// first. Without numbers of values, each part is the whole tensor.
std::vector<Part> parts_of_others(GroupHandle& group, const at::Tensor& tensor, const int64_t* values) {
  const int own = group.group->getRank(), ranks = group.group->getSize();
  std::vector<Part> parts;
  for (int i = 1; i < ranks; ++i) {
    const int rank = (own + i) % ranks;
    const int64_t begin = values == nullptr ? 0 : std::accumulate(values, values + rank, int64_t{0});
    const int64_t length = values == nullptr ? tensor.numel() : values[rank];
    if (length > 0) parts.push_back({rank, tensor.narrow(0, begin, length)});
  }
  return parts;
}

}  // namespace

extern "C" {

void grappa_free_text(char* text) { std::free(text); }

// Keeps c10d's own messages for errors that the caller reports anyway off stderr.
void grappa_log_fatal_only() { FLAGS_caffe2_log_level = 3; }

// A connection to a TCPStore. Connecting may take `connect_ms`, operations on the store `timeout_ms`.
StoreHandle* grappa_store_open(
    const char* host,
    uint16_t port,
    int64_t connect_ms,
    int64_t timeout_ms,
    char** error) {
  return guarded(error, static_cast<StoreHandle*>(nullptr), [&] {
    c10d::TCPStoreOptions options;
    options.port = port;
    options.waitWorkers = false;
    options.timeout = milliseconds(connect_ms);
    auto tcp = c10::make_intrusive<c10d::TCPStore>(host, options);
    tcp->setTimeout(milliseconds(timeout_ms));
    return new StoreHandle{std::move(tcp)};
  });
}

void grappa_store_free(StoreHandle* store) { delete store; }

int grappa_store_set(StoreHandle* store, const char* key, const uint8_t* value, size_t length, char** error) {
  return guarded(error, FAILED, [&] {
    store->tcp->set(key, std::vector<uint8_t>(value, value + length));
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
    std::vector<uint8_t> found = store->tcp->compareSet(key, {}, std::vector<uint8_t>(value, value + length));
    take(context, found.data(), found.size());
    return DONE;
  });
}

// Passes the value of a key to `take`, if it has one.
int grappa_store_get(
    StoreHandle* store, const char* key, void* context, void (*take)(void*, const uint8_t*, size_t), char** error) {
  return guarded(error, FAILED, [&] {
    if (!store->tcp->check({key})) return NOT_YET;
    std::vector<uint8_t> value = store->tcp->get(key);
    take(context, value.data(), value.size());
    return DONE;
  });
}

int grappa_store_delete(StoreHandle* store, const char* key, char** error) {
  return guarded(error, FAILED, [&] {
    store->tcp->deleteKey(key);
    return DONE;
  });
}

// Connects all ranks through the keys, which it takes; `patience_ms` is for that, and `timeout_ms` for each operation of the group.
GroupHandle* grappa_group_new(
    void* keys,
    SetKey set,
    GetKey get,
    FreeKeys free_keys,
    int rank,
    int size,
    int64_t patience_ms,
    int64_t timeout_ms,
    char** error) {
  auto store = c10::make_intrusive<Keys>(keys, set, get, free_keys, milliseconds(patience_ms));
  return guarded(error, static_cast<GroupHandle*>(nullptr), [&] {
    // Takes the interfaces of GLOO_SOCKET_IFNAME, as PyTorch does.
    auto options = c10d::ProcessGroupGloo::Options::create_default(milliseconds(patience_ms));
    auto group = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
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
    return new WorkHandle{started([&] { return group->group->allreduce(tensors, options); }), {}};
  });
}

// Gets ready to receive a part of `output` from each other rank. Parts follow each other by rank, with these numbers of values. A rank
// must be ready before it sends. If not, what it sends would be in the way of the word that it is ready: between two ranks there is one
// connection.
ReceivesHandle* grappa_receive(
    GroupHandle* group, const at::Tensor* output, const int64_t* values, int tag, char** error) {
  return guarded(error, static_cast<ReceivesHandle*>(nullptr), [&] {
    auto receives = std::make_unique<ReceivesHandle>();
    for (Part& part : parts_of_others(*group, *output, values)) {
      std::vector<at::Tensor> tensors{part.tensor};
      receives->works.push_back(started([&] { return group->group->recv(tensors, part.rank, tag); }));
    }
    return receives.release();
  });
}

// Starts to send a part of `input` to each other rank, or all of it if there are no numbers of values. The work ends when they are sent,
// and what `receives` wait for has come. Takes `receives`, even if it fails.
WorkHandle* grappa_send(
    GroupHandle* group,
    ReceivesHandle* receives,
    const at::Tensor* input,
    const int64_t* values,
    int tag,
    char** error) {
  std::vector<Work> works = std::move(receives->works);
  delete receives;
  return guarded(error, static_cast<WorkHandle*>(nullptr), [&] {
    for (Part& part : parts_of_others(*group, *input, values)) {
      std::vector<at::Tensor> tensors{part.tensor};
      works.push_back(started([&] { return group->group->send(tensors, part.rank, tag); }));
    }
    // A wait of c10d that ends by its timeout closes the connections. So a thread waits, and others look at it.
    std::packaged_task<void()> wait([works = std::move(works)] {
      for (const Work& work : works) work->wait(NEVER);
    });
    auto handle = std::make_unique<WorkHandle>(WorkHandle{nullptr, wait.get_future()});
    std::thread(std::move(wait)).detach();
    return handle.release();
  });
}

void grappa_work_free(WorkHandle* work) { delete work; }

int grappa_work_wait(WorkHandle* work, int64_t timeout_ms, char** error) {
  if (!work->work) {
    if (work->messages.wait_for(milliseconds(timeout_ms)) == std::future_status::timeout) return NOT_YET;
    return guarded(error, FAILED, [&] {
      work->messages.get();
      return DONE;
    });
  }
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
