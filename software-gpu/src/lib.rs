//! A libcuda.so.1 that runs PTX on the CPU.
