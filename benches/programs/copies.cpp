// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Bandwidth of synchronous copies. Each argument names one: KIND-DIRECTION-MiB with KIND pinned, pageable (memory as a
// program gets it), huge or small (pageable memory that asks for huge pages, or asks for none).
#include "driver.h"

constexpr size_t kPage = 4096;
constexpr unsigned kWords = kPage / sizeof(unsigned);

// Host memory, touched as a program's own would be: each page has its own contents.
class Host {
 public:
  Host(const std::string& kind, size_t bytes) : bytes_(bytes), pinned_(kind == "pinned") {
    if (pinned_) {
      CHECK(cuMemHostAlloc(reinterpret_cast<void**>(&data_), bytes, 0));
    } else {
      // Huge pages need an aligned range.
      constexpr size_t kHuge = 2 << 20;
      mapped_ = bytes + kHuge;
      void* const at = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (at == MAP_FAILED) stop(2, "no memory for %zu bytes", bytes);
      map_ = at;
      data_ = reinterpret_cast<unsigned*>((reinterpret_cast<uintptr_t>(at) + kHuge - 1) & ~(kHuge - 1));
      if (kind == "huge") madvise(data_, bytes, MADV_HUGEPAGE);
      else if (kind == "small") madvise(data_, bytes, MADV_NOHUGEPAGE);
      else if (kind != "pageable") stop(2, "%s: an unknown kind of memory", kind.c_str());
    }
    unsigned page[kWords];
    for (unsigned i = 0; i < kWords; ++i) page[i] = i * 2654435761u;
    for (size_t at = 0; at < pages(); ++at) {
      page[kWords - 1] = static_cast<unsigned>(at) ^ 0xabcd1234u;
      memcpy(data_ + at * kWords, page, kPage);
    }
  }
  ~Host() {
    if (pinned_) CHECK(cuMemFreeHost(data_));
    else munmap(map_, mapped_);
  }
  Host(const Host&) = delete;

  unsigned* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  unsigned pages() const { return static_cast<unsigned>(bytes_ / kPage); }
  // Writes a mark to every page, so that each copy transfers different data.
  void mark(unsigned value) {
    for (size_t at = 0; at < pages(); ++at) data_[at * kWords] = value;
  }
  void expect_marks(unsigned value) const {
    for (size_t at = 0; at < pages(); ++at)
      EXPECT(data_[at * kWords] == value, "page %zu has the mark %u in place of %u", at, data_[at * kWords], value);
  }
  // Every byte but the marks.
  void expect_contents() const {
    unsigned page[kWords];
    for (unsigned i = 0; i < kWords; ++i) page[i] = i * 2654435761u;
    for (size_t at = 0; at < pages(); ++at) {
      page[kWords - 1] = static_cast<unsigned>(at) ^ 0xabcd1234u;
      EXPECT(memcmp(data_ + at * kWords + 1, page + 1, kPage - sizeof(unsigned)) == 0, "the contents of page %zu", at);
    }
  }
  // Megabytes of it that lie in huge pages; the kernel's word.
  double huge_mib() const {
    FILE* const file = fopen("/proc/self/smaps", "r");
    if (file == nullptr) return 0;
    char line[512];
    bool inside = false;
    double kib = 0;
    while (fgets(line, sizeof line, file) != nullptr) {
      unsigned long from = 0, to = 0;
      double value = 0;
      if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
        inside = from <= reinterpret_cast<uintptr_t>(data_) + bytes_ - 1 && to > reinterpret_cast<uintptr_t>(data_);
      else if (inside && sscanf(line, "AnonHugePages: %lf", &value) == 1)
        kib += value;
    }
    fclose(file);
    return kib / 1024;
  }

 private:
  unsigned* data_ = nullptr;
  void* map_ = nullptr;
  size_t bytes_, mapped_ = 0;
  bool pinned_;
};

class Copy {
 public:
  Copy(Device& device, const std::string& kind, size_t bytes) : device_(device), host_(kind, bytes) {
    CHECK(cuMemAlloc(&address_, bytes));
    CHECK(cuMemAlloc(&unmarked_, sizeof(unsigned)));
    mark_ = device.function("mark_pages");
    count_ = device.function("count_unmarked");
    async_ = kind == "pinned";
  }
  ~Copy() {
    CHECK(cuMemFree(unmarked_));
    CHECK(cuMemFree(address_));
  }

  // GB/s of the median copy.
  double to_device(int times) {
    Samples samples;
    for (int i = 0; i <= times; ++i) {
      host_.mark(i + 1);
      const double begin = now();
      up();
      const double took = now() - begin;
      // The first warms up.
      if (i > 0) samples.add(took);
      expect_device_marks(i + 1);
    }
    memset(host_.data(), 0, host_.bytes());
    down();
    host_.expect_contents();
    return host_.bytes() / samples.median() * 1e-3;
  }
  double to_host(int times) {
    Samples samples;
    up();
    for (int i = 0; i <= times; ++i) {
      mark_device(i + 1);
      const double begin = now();
      down();
      const double took = now() - begin;
      if (i > 0) samples.add(took);
      host_.expect_marks(i + 1);
    }
    host_.expect_contents();
    return host_.bytes() / samples.median() * 1e-3;
  }
  double huge_part() const { return host_.huge_mib() * (1 << 20) / host_.bytes(); }

 private:
  void up() {
    if (async_) {
      CHECK(cuMemcpyHtoDAsync(address_, host_.data(), host_.bytes(), device_.stream));
      CHECK(cuStreamSynchronize(device_.stream));
    } else {
      CHECK(cuMemcpyHtoD(address_, host_.data(), host_.bytes()));
      // From pageable memory it returns once the last bytes are on their way.
      CHECK(cuCtxSynchronize());
    }
  }
  void down() {
    if (async_) {
      CHECK(cuMemcpyDtoHAsync(host_.data(), address_, host_.bytes(), device_.stream));
      CHECK(cuStreamSynchronize(device_.stream));
    } else {
      CHECK(cuMemcpyDtoH(host_.data(), address_, host_.bytes()));
    }
  }
  void mark_device(unsigned mark) {
    unsigned words = kWords, pages = host_.pages();
    void* arguments[] = {&address_, &words, &pages, &mark};
    CHECK(cuLaunchKernel(mark_, (pages + 255) / 256, 1, 1, 256, 1, 1, 0, device_.stream, arguments, nullptr));
    CHECK(cuStreamSynchronize(device_.stream));
  }
  void expect_device_marks(unsigned mark) {
    unsigned words = kWords, pages = host_.pages(), unmarked = ~0u;
    void* arguments[] = {&address_, &words, &pages, &mark, &unmarked_};
    CHECK(cuMemsetD32Async(unmarked_, 0, 1, device_.stream));
    CHECK(cuLaunchKernel(count_, (pages + 255) / 256, 1, 1, 256, 1, 1, 0, device_.stream, arguments, nullptr));
    CHECK(cuStreamSynchronize(device_.stream));
    CHECK(cuMemcpyDtoH(&unmarked, unmarked_, sizeof unmarked));
    EXPECT(unmarked == 0, "%u of %u pages did not arrive", unmarked, pages);
  }

  Device& device_;
  Host host_;
  CUdeviceptr address_ = 0, unmarked_ = 0;
  CUfunction mark_, count_;
  bool async_;
};

int main(int argc, char** argv) {
  const Wanted wanted(argc, argv);
  Device device;
  wanted.settle();
  for (const std::string& name : wanted.names()) {
    const size_t first = name.find('-'), last = name.rfind('-');
    if (first == last) stop(2, "%s: not KIND-DIRECTION-MiB", name.c_str());
    const std::string kind = name.substr(0, first), direction = name.substr(first + 1, last - first - 1);
    const size_t mib = strtoull(name.c_str() + last + 1, nullptr, 10);
    if (mib < 1 || mib > 65536 || (direction != "h2d" && direction != "d2h")) stop(2, "%s: unknown", name.c_str());
    Copy copy(device, kind, mib << 20);
    const int times = wanted.repetitions(mib >= 256 ? 7 : mib >= 64 ? 11 : 21);
    report(name, direction == "h2d" ? copy.to_device(times) : copy.to_host(times), "GB/s");
    if (kind == "huge" || kind == "small") report(name + "-huge-part", copy.huge_part(), "");
  }
  return 0;
}
