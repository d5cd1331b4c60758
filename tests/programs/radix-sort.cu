// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Sorts 32-bit keys, least significant digit first: for each of four 8-bit digits, counts the digit's values in every
// tile, scans the counts, and moves each key to the position for its digit. Each pass is stable, so that the passes
// combine.
#include <algorithm>

#include "runtime.h"

constexpr unsigned kBlock = 256, kWarps = kBlock / 32, kItems = 8, kTile = kBlock * kItems, kDigits = 256;
static_assert(kBlock == kDigits, "one thread for each value of a digit");

__device__ unsigned digit_of(uint32_t key, unsigned shift) { return key >> shift & (kDigits - 1); }

// counts[digit * tiles + tile] = how many of the tile's keys have that digit
__global__ void count_digits(const uint32_t* keys, unsigned* counts, unsigned count, unsigned tiles, unsigned shift) {
  __shared__ unsigned histogram[kDigits];
  histogram[threadIdx.x] = 0;
  __syncthreads();
  for (unsigned i = 0; i < kItems; ++i) {
    const unsigned index = blockIdx.x * kTile + i * kBlock + threadIdx.x;
    if (index < count) atomicAdd(&histogram[digit_of(keys[index], shift)], 1u);
  }
  __syncthreads();
  counts[threadIdx.x * tiles + blockIdx.x] = histogram[threadIdx.x];
}

// The sum of `value` over the lower lanes of the warp and this one.
__device__ unsigned warp_inclusive_sum(unsigned value) {
  const unsigned lane = threadIdx.x % 32;
  for (unsigned distance = 1; distance < 32; distance *= 2) {
    const unsigned below = __shfl_up_sync(~0u, value, distance);
    if (lane >= distance) value += below;
  }
  return value;
}

// Replaces each element by the sum of those before it in its tile; totals[tile] is the tile's sum.
__global__ void scan_tiles(unsigned* data, unsigned* totals, unsigned count) {
  __shared__ unsigned warp_totals[kWarps];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const unsigned start = blockIdx.x * kTile + threadIdx.x * kItems;
  unsigned values[kItems], sum = 0;
#pragma unroll
  for (unsigned i = 0; i < kItems; ++i) {
    values[i] = start + i < count ? data[start + i] : 0;
    sum += values[i];
  }
  const unsigned inclusive = warp_inclusive_sum(sum);
  if (lane == 31) warp_totals[warp] = inclusive;
  __syncthreads();
  if (warp == 0) {
    const unsigned total = warp_inclusive_sum(lane < kWarps ? warp_totals[lane] : 0);
    if (lane < kWarps) warp_totals[lane] = total;
  }
  __syncthreads();
  unsigned running = inclusive - sum + (warp == 0 ? 0 : warp_totals[warp - 1]);
#pragma unroll
  for (unsigned i = 0; i < kItems; ++i) {
    if (start + i < count) data[start + i] = running;
    running += values[i];
  }
  if (threadIdx.x == 0) totals[blockIdx.x] = warp_totals[kWarps - 1];
}

// Adds to each tile what precedes it.
__global__ void add_totals(unsigned* data, const unsigned* totals, unsigned count) {
  const unsigned total = totals[blockIdx.x];
  for (unsigned i = 0; i < kItems; ++i) {
    const unsigned index = blockIdx.x * kTile + i * kBlock + threadIdx.x;
    if (index < count) data[index] += total;
  }
}

// Puts each key at its place. A warp takes 32 * kItems consecutive keys, 32 at a time; the lanes that hold the same
// digit find each other by one ballot for each bit.
__global__ void scatter(const uint32_t* keys, uint32_t* sorted, const unsigned* offsets, unsigned count, unsigned tiles,
                        unsigned shift) {
  __shared__ unsigned places[kWarps][kDigits];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (unsigned i = 0; i < kWarps; ++i) places[i][threadIdx.x] = 0;
  __syncthreads();

  const unsigned start = blockIdx.x * kTile + warp * 32 * kItems + lane;
  uint32_t values[kItems];
  unsigned ranks[kItems];
#pragma unroll
  for (unsigned i = 0; i < kItems; ++i) {
    const bool valid = start + i * 32 < count;
    values[i] = valid ? keys[start + i * 32] : 0;
    const unsigned digit = digit_of(values[i], shift);
    unsigned same = __ballot_sync(~0u, valid);
    for (unsigned bit = 0; bit < 8; ++bit) {
      const bool set = digit >> bit & 1;
      const unsigned others = __ballot_sync(~0u, set);
      same &= set ? others : ~others;
    }
    const unsigned before = places[warp][digit];
    __syncwarp();
    ranks[i] = before + __popc(same & ((1u << lane) - 1));
    if (valid && (same >> lane) == 1) places[warp][digit] = ranks[i] + 1;  // the highest of the lanes that agree
    __syncwarp();
  }
  __syncthreads();

  unsigned place = offsets[threadIdx.x * tiles + blockIdx.x];
  for (unsigned i = 0; i < kWarps; ++i) {
    const unsigned here = places[i][threadIdx.x];
    places[i][threadIdx.x] = place;
    place += here;
  }
  __syncthreads();
#pragma unroll
  for (unsigned i = 0; i < kItems; ++i)
    if (start + i * 32 < count) sorted[places[warp][digit_of(values[i], shift)] + ranks[i]] = values[i];
}

static unsigned tiles_for(uint64_t count) { return static_cast<unsigned>((count + kTile - 1) / kTile); }

// Scans `count` counts in place; totals[level] has room for that level's tile sums.
static void scan(unsigned* data, unsigned count, const std::vector<unsigned*>& totals, size_t level) {
  const unsigned tiles = tiles_for(count);
  scan_tiles<<<tiles, kBlock>>>(data, totals[level], count);
  if (tiles == 1) return;
  scan(totals[level], tiles, totals, level + 1);
  add_totals<<<tiles, kBlock>>>(data, totals[level], count);
}

static bool run(Program* program) {
  const uint64_t count = program->size();
  const unsigned tiles = tiles_for(count);
  HostBuffer<uint32_t> keys(count, program->pinned()), sorted(count, program->pinned());
  for (uint64_t i = 0; i < count; ++i) keys[i] = static_cast<uint32_t>(random_bits(program->seed(), i) >> 32);

  program->total.start();
  {
    DeviceBuffer<uint32_t> device_keys(count), device_other(count);
    DeviceBuffer<unsigned> counts(size_t{tiles} * kDigits);
    size_t room = 0;
    for (unsigned level = tiles * kDigits; level > 1; level = tiles_for(level)) room += tiles_for(level);
    DeviceBuffer<unsigned> sums(room);
    std::vector<unsigned*> totals;
    unsigned* at = sums.get();
    for (unsigned level = tiles * kDigits; level > 1; level = tiles_for(level)) {
      totals.push_back(at);
      at += tiles_for(level);
    }
    KernelTimer timer(program);
    for (uint64_t i = 0; i < program->iterations(); ++i) {
      device_keys.upload(keys.get(), program);
      timer.start();
      uint32_t *from = device_keys.get(), *to = device_other.get();
      for (unsigned shift = 0; shift < 32; shift += 8) {
        count_digits<<<tiles, kBlock>>>(from, counts.get(), count, tiles, shift);
        scan(counts.get(), tiles * kDigits, totals, 0);
        scatter<<<tiles, kBlock>>>(from, to, counts.get(), count, tiles, shift);
        std::swap(from, to);
      }
      timer.stop();
      device_keys.download(sorted.get(), program);  // four digits: back where it began
    }
  }
  program->total.stop();
  program->emit(sorted.get(), sorted.bytes());

  Mismatches wrong;
  std::sort(keys.get(), keys.get() + count);
  for (uint64_t i = 0; i < count; ++i)
    if (keys[i] != sorted[i]) wrong.report("key %" PRIu64 ": %08x in place of %08x", i, sorted[i], keys[i]);
  return wrong.none();
}

int main(int argc, char** argv) {
  Program program("radix-sort", "sorts 32-bit keys, least significant digit first", "keys", 16384, 32u << 20);
  program.size_limit(1u << 30);
  program.parse(argc, argv);
  return program.finish(run(&program));
}
