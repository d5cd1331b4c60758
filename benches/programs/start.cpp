// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// The time of a process from main to its first kernel's result, on the driver API.
#include "driver.h"

int main() {
  const double begin = now();
  unsigned value = 41;
  double end;
  {
    Device device;
    CUdeviceptr address;
    CHECK(cuMemAlloc(&address, sizeof value));
    CHECK(cuMemcpyHtoD(address, &value, sizeof value));
    CUfunction add = device.function("add_one");
    void* arguments[] = {&address};
    CHECK(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, device.stream, arguments, nullptr));
    CHECK(cuStreamSynchronize(device.stream));
    CHECK(cuMemcpyDtoH(&value, address, sizeof value));
    end = now();
    EXPECT(value == 42, "41 + 1 = %u", value);
    CHECK(cuMemFree(address));
  }
  report("start-driver", (end - begin) * 1e-3, "ms");
  return 0;
}
