// The C++ half of `shim/memory.rs`: an allocator of tensors on the processor that keeps freed blocks for the next tensors.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <unordered_map>

#include <sys/mman.h>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

namespace {

// Mapped memory starts at multiples of it, on every processor.
constexpr size_t kPage = 4096;
// Blocks are multiples of it.
constexpr size_t kStep = size_t{64} << 10;
// No machine has that much. Sizes above are left to libtorch, for its error.
constexpr size_t kMost = size_t{1} << 46;

// Blocks of at least `smallest` bytes are mapped here and kept when they are freed; libtorch's own allocator has the others.
struct KeepingAllocator final : c10::Allocator {
  explicit KeepingAllocator(size_t smallest) : smallest(smallest), others(c10::GetDefaultCPUAllocator()) {}

  c10::DataPtr allocate(size_t bytes) override {
    void* block = bytes >= smallest && bytes <= kMost ? take(rounded(bytes)) : nullptr;
    if (block == nullptr) block = others->raw_allocate(bytes);
    return {block, block, &free_block, c10::Device(c10::DeviceType::CPU)};
  }

  // oneDNN asks for memory without its deleter, so all blocks have the same.
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }

  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  // Returns all kept blocks to the system.
  void release() {
    std::lock_guard<std::mutex> guard(lock);
    release_until(0);
  }

  void bytes(size_t* of_tensors, size_t* of_kept) {
    std::lock_guard<std::mutex> guard(lock);
    *of_tensors = used_bytes;
    *of_kept = kept_bytes;
  }

  static KeepingAllocator* installed;

 private:
  // Rounds up, by at most an eighth, because minibatches differ a little.
  static size_t rounded(size_t bytes) {
    size_t step = kStep;
    while (step * 16 <= bytes) step *= 2;
    return (bytes + step - 1) / step * step;
  }

  // A block of `bytes`, or a kept one that is at most a quarter larger. Null if the system refuses.
  void* take(size_t bytes) {
    std::lock_guard<std::mutex> guard(lock);
    auto found = kept.lower_bound(bytes);
    if (found != kept.end() && found->first <= bytes + bytes / 4) {
      auto [size, block] = *found;
      kept.erase(found);
      kept_bytes -= size;
      use(block, size);
      return block;
    }
    // All blocks together take no more than tensors took at some time, or will take now.
    release_until(std::max(most_bytes, used_bytes + bytes) - used_bytes - bytes);
    void* block = map(bytes);
    if (block == nullptr) {
      release_until(0);
      block = map(bytes);
    }
    if (block != nullptr) use(block, bytes);
    return block;
  }

  void use(void* block, size_t bytes) {
    used.emplace(block, bytes);
    used_bytes += bytes;
    most_bytes = std::max(most_bytes, used_bytes);
  }

  // Unmaps kept blocks, large ones first, until those left have at most `bytes`.
  void release_until(size_t bytes) {
    while (kept_bytes > bytes) {
      auto last = std::prev(kept.end());
      munmap(last->second, last->first);
      kept_bytes -= last->first;
      kept.erase(last);
    }
  }

  static void* map(size_t bytes) {
    void* block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return block == MAP_FAILED ? nullptr : block;
  }

  static void free_block(void* block) {
    // Most blocks are small, and need no lock.
    bool may_be_mapped = reinterpret_cast<uintptr_t>(block) % kPage == 0;
    if (!may_be_mapped || !installed->give_back(block)) installed->others->raw_deallocate(block);
  }

  // Keeps a mapped block. False if it is none.
  bool give_back(void* block) {
    std::lock_guard<std::mutex> guard(lock);
    auto found = used.find(block);
    if (found == used.end()) return false;
    size_t bytes = found->second;
    used.erase(found);
    used_bytes -= bytes;
    kept.emplace(bytes, block);
    kept_bytes += bytes;
    return true;
  }

  const size_t smallest;
  c10::Allocator* const others;
  std::mutex lock;
  // Size of each block of a tensor.
  std::unordered_map<void*, size_t> used;
  // Free blocks, by size.
  std::multimap<size_t, void*> kept;
  size_t used_bytes = 0;
  size_t kept_bytes = 0;
  // The most that tensors took so far.
  size_t most_bytes = 0;
};

KeepingAllocator* KeepingAllocator::installed = nullptr;

}  // namespace

extern "C" {

// Installs the allocator for the rest of the process, once. Tensors refer to it as long as they live, so it is never freed.
void grappa_keep_blocks(size_t smallest) {
  static std::once_flag once;
  std::call_once(once, [&] {
    KeepingAllocator::installed = new KeepingAllocator(smallest);
    c10::SetCPUAllocator(KeepingAllocator::installed);
  });
}

// Returns the kept blocks to the system.
void grappa_release_blocks() {
  if (KeepingAllocator::installed != nullptr) KeepingAllocator::installed->release();
}

// Bytes of the blocks of tensors, and of those that are kept.
void grappa_block_bytes(size_t* of_tensors, size_t* of_kept) {
  *of_tensors = *of_kept = 0;
  if (KeepingAllocator::installed != nullptr) KeepingAllocator::installed->bytes(of_tensors, of_kept);
}

}  // extern "C"
